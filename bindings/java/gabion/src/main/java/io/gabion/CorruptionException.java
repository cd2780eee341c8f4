package io.gabion;

/** What is on the medium is not a store that this version can read. */
public class CorruptionException extends StorageException {
    private static final long serialVersionUID = 1;

    CorruptionException(Code code, String message) {
        super(code, message);
    }
}
