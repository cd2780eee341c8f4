package io.gabion;

/** A store, a snapshot, an iterator or a transaction was used after its end. */
public class ClosedException extends GabionException {
    private static final long serialVersionUID = 1;

    ClosedException(Code code, String message) {
        super(code, message);
    }
}
