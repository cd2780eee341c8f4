package io.gabion;

/** The operator of a keyspace failed for a key, or is not the one that was given. */
public class MergeException extends GabionException {
    private static final long serialVersionUID = 1;

    MergeException(Code code, String message) {
        super(code, message);
    }
}
