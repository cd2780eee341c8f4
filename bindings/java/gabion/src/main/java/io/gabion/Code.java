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
    /** The store is read-only after an earlier failure, or was opened read-only. */
    READ_ONLY,
    /** A key, a value, a batch, a name or a transaction is too long. */
    LIMIT,
    /** Pairs that must ascend do not. */
    OUT_OF_ORDER,
    /** The option is unknown, or its value is invalid. */
    INVALID_OPTION,
    /** The store has no keyspace of that name. */
    NO_SUCH_KEYSPACE,
    /** The name is reserved for tools. */
    RESERVED_NAME,
    /** The keyspace was dropped. */
    KEYSPACE_DROPPED,
    /** Another write has changed what the transaction read: run it again. */
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
    /** The object is closed. */
    CLOSED,
    /** The transaction is committed or rolled back. */
    ENDED,
    /** An argument is invalid. */
    INVALID_ARGUMENT,
    /** Another thread is using an object that one thread at a time may use. */
    BUSY,
    /** A thread of the store failed, or Gabion panicked, which is a bug. */
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

    /** The code of a number. An unknown code of a newer library becomes INTERNAL. */
    static Code of(int number) {
        return number >= 1 && number <= ALL.length ? ALL[number - 1] : INTERNAL;
    }
}
