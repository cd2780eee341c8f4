package io.gabion;

/** The store is open elsewhere, in this process or another one. */
public class LockedException extends StorageException {
    private static final long serialVersionUID = 1;

    LockedException(Code code, String message) {
        super(code, message);
    }
}
