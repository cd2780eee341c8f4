package io.gabion;

/** The store has no keyspace of that name, or no longer has it. */
public class NoSuchKeyspaceException extends GabionException {
    private static final long serialVersionUID = 1;

    NoSuchKeyspaceException(Code code, String message) {
        super(code, message);
    }
}
