package io.gabion;

/** The medium refused, is full, or takes no writes any more. */
public class StorageException extends GabionException {
    private static final long serialVersionUID = 1;

    StorageException(Code code, String message) {
        super(code, message);
    }
}
