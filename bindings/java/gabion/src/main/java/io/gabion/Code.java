package io.gabion;

/**
 * The kinds of failures. Their names and numbers, which begin with one, are those that every
 * language has for them.
 */
public enum Code {
    /** The medium refused an operation. */
    MEDIA,
    /** The store is open elsewhere, in this process or another one. */
    LOCKED,
    /** The medium is full. */
    NO_SPACE,
    /** The process or the system has too many files open. */
    TOO_MANY_FILES,
    /** Bytes on the medium do not pass their checks. */
    CORRUPTION,
    /** The directory holds no store. */
    NOT_A_STORE,
    /** A newer version of Gabion wrote the store. */
    NEWER_FORMAT,
    /** The store needs a part that this library was built without. */
    MISSING_FEATURE,
    /** An earlier failure ended writing, or the store was opened for reading only. */
    READ_ONLY,
    /** A key, a value, a batch, a name or a transaction is too long. */
    LIMIT,
    /** Pairs that must ascend do not. */
    OUT_OF_ORDER,
    /** There is no such option, or its value cannot work. */
    INVALID_OPTION,
    /** The store has no keyspace of that name. */
    NO_SUCH_KEYSPACE,
    /** The name is reserved for tools. */
    RESERVED_NAME,
    /** The keyspace was dropped. */
    KEYSPACE_DROPPED,
    /** The transaction has read what somebody else has written since: run it again. */
    CONFLICT,
    /** The transaction was open for too long: run it again. */
    TRANSACTION_TOO_OLD,
    /** The transaction has no such savepoint. */
    NO_SUCH_SAVEPOINT,
    /** The keyspace belongs to another store. */
    FOREIGN_KEYSPACE,
    /** The engine cannot do this. */
    UNSUPPORTED,
    /** The process is a fork of the one that opened the store. */
    FORKED,
    /** It is closed. */
    CLOSED,
    /** The transaction is committed or rolled back. */
    ENDED,
    /** An argument cannot be. */
    INVALID_ARGUMENT,
    /** Another thread uses what only one may use at a time. */
    BUSY,
    /** A thread of the store failed, or a bug of Gabion's was stopped at its border. */
    INTERNAL,
    /** The merge operator of a keyspace failed for a key. */
    MERGE_FAILED,
    /** The keyspace has another merge operator than the program gave, or the program gave none. */
    OTHER_MERGE_OPERATOR,
    /** The directory holds no repository of backups. */
    NOT_A_REPOSITORY,
    /** The repository has no backup of that number. */
    NO_SUCH_BACKUP,
    /** A part of a backup is missing or damaged. */
    BACKUP_DAMAGED,
    /** Who listened to the progress of an operation has ended it. */
    CANCELLED,
    /** The log has the changes behind a position no more. */
    CHANGES_GONE,
    /** Changes were made that the log does not tell. */
    CHANGES_UNLOGGED,
    /** The store has no consumer of that name. */
    NO_SUCH_CONSUMER;

    private static final Code[] ALL = values();

    /** The code of a number. One that a newer library knows is told as a failure of its own. */
    static Code of(int number) {
        return number >= 1 && number <= ALL.length ? ALL[number - 1] : INTERNAL;
    }
}
