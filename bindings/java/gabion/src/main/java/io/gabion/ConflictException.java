package io.gabion;

/**
 * A transaction did not take effect, as somebody else was faster or it took too long: run it again.
 */
public class ConflictException extends GabionException {
    private static final long serialVersionUID = 1;

    ConflictException(Code code, String message) {
        super(code, message);
    }
}
