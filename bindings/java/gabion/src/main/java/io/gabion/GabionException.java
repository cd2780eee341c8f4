package io.gabion;

/**
 * What a call of Gabion's ends with, if not well. The message names what is wrong, where, and the
 * remedy; {@link #code} tells the kind, finer than the subclasses do.
 */
public class GabionException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** The kind of failure. */
    private final Code code;

    GabionException(Code code, String message) {
        super(message);
        this.code = code;
    }

    /** The kind of failure. */
    public final Code code() {
        return code;
    }

    /** The exception of a code's number. The native library calls it. */
    static GabionException of(int number, String message) {
        return of(Code.of(number), message);
    }

    static GabionException of(Code code, String message) {
        switch (code) {
            case CLOSED:
            case FORKED:
            case ENDED:
                return new ClosedException(code, message);
            case CONFLICT:
            case TRANSACTION_TOO_OLD:
                return new ConflictException(code, message);
            case CORRUPTION:
            case NOT_A_STORE:
            case NEWER_FORMAT:
            case MISSING_FEATURE:
                return new CorruptionException(code, message);
            case LOCKED:
                return new LockedException(code, message);
            case MEDIA:
            case NO_SPACE:
            case TOO_MANY_FILES:
            case READ_ONLY:
                return new StorageException(code, message);
            case NO_SUCH_KEYSPACE:
            case KEYSPACE_DROPPED:
                return new NoSuchKeyspaceException(code, message);
            case MERGE_FAILED:
            case OTHER_MERGE_OPERATOR:
                return new MergeException(code, message);
            case INTERNAL:
                return new GabionException(code, message);
            default:
                return new InvalidRequestException(code, message);
        }
    }
}
