package io.gabion;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.LockSupport;

/**
 * An open store. Any number of threads may use it. It is open in one process at a time, and once in
 * that; {@link #close} ends all that was made from it.
 */
public final class Store extends Handle {
    /** Attempts of a transaction that follow each other at once. */
    private static final int ATTEMPTS_AT_ONCE = 3;

    /** The longest pause after the first attempt that waits; it doubles with each one. */
    private static final long PAUSE_NANOS = 20_000;

    /** How often it doubles: up to 20 ms. */
    private static final int DOUBLINGS_MAX = 10;

    private final Path path;
    private final Keyspace defaultKeyspace;
    private final Map<String, Keyspace> keyspaces = new ConcurrentHashMap<>();

    Store(Path path, Options options) {
        super(Native.open(path.toString(), options.packed()), "the store " + path);
        this.path = path;
        this.defaultKeyspace =
                new Keyspace(this, "default", Native.keyspace(number, null, null));
        keyspaces.put(defaultKeyspace.name(), defaultKeyspace);
    }

    /** The directory that it is in. */
    public Path path() {
        return path;
    }

    /** The keyspace that every store has. */
    public Keyspace defaultKeyspace() {
        return defaultKeyspace;
    }

    /** The keyspace of a name, which is made if it is not there. */
    public Keyspace keyspace(String name) {
        Keyspace known = keyspaces.get(Objects.requireNonNull(name));
        return known == null ? keyspace(name, new KeyspaceOptions()) : known;
    }

    /** The keyspace of a name, which is made with these options if it is not there. */
    public Keyspace keyspace(String name, KeyspaceOptions options) {
        return known(name, Native.keyspace(number, name, options.packed()));
    }

    /**
     * The keyspace of a name.
     *
     * @throws NoSuchKeyspaceException if it is not there
     */
    public Keyspace existingKeyspace(String name) {
        Keyspace known = keyspaces.get(Objects.requireNonNull(name));
        return known == null ? known(name, Native.keyspace(number, name, null)) : known;
    }

    private Keyspace known(String name, long found) {
        Keyspace made = new Keyspace(this, name, found);
        Keyspace known = keyspaces.putIfAbsent(name, made);
        if (known == null) {
            return made;
        }
        Native.free(found);
        return known;
    }

    /** The names of all keyspaces. */
    public List<String> keyspaceNames() {
        byte[] packed = Native.keyspaceNames(number);
        List<String> names = new ArrayList<>();
        for (int at = 0; at < packed.length; ) {
            int end = at + 4 + Packer.intAt(packed, at);
            names.add(new String(Arrays.copyOfRange(packed, at + 4, end), StandardCharsets.UTF_8));
            at = end;
        }
        return names;
    }

    /** Drops a keyspace with all that is in it. Who still has it gets exceptions. */
    public void dropKeyspace(String name) {
        Native.dropKeyspace(number, Objects.requireNonNull(name));
        keyspaces.remove(name);
    }

    /** Writes a batch, at the durability of the store. */
    public void write(WriteBatch batch) {
        batch.write(this, null);
    }

    /** Writes a batch, at a durability. */
    public void write(WriteBatch batch, Durability durability) {
        batch.write(this, Objects.requireNonNull(durability));
    }

    /** All keyspaces as they are now. */
    public Snapshot snapshot() {
        return new Snapshot(this);
    }

    /** Begins a transaction that is serializable. */
    public Transaction begin() {
        return begin(new TransactionOptions());
    }

    /** Begins a transaction. */
    public Transaction begin(TransactionOptions options) {
        return new Transaction(this, options);
    }

    /** As {@link #transact(TransactionOptions, TransactionBody)}, with the defaults. */
    public <T, E extends Exception> T transact(TransactionBody<T, E> body) throws E {
        return transact(new TransactionOptions(), body);
    }

    /**
     * Runs a body in a transaction and commits it; after a conflict again, with a new transaction,
     * as often as {@link TransactionOptions#attemptsMax} says. What the body throws rolls back.
     *
     * @throws ConflictException if every attempt met one
     */
    public <T, E extends Exception> T transact(
            TransactionOptions options, TransactionBody<T, E> body) throws E {
        int attemptsMax = Native.attemptsMax(options.packed());
        for (int attempt = 1; ; attempt++) {
            try (Transaction transaction = begin(options)) {
                T answer = body.run(transaction);
                try {
                    transaction.commit();
                    return answer;
                } catch (ConflictException conflict) {
                    if (conflict.code() != Code.CONFLICT || attempt >= attemptsMax) {
                        throw conflict;
                    }
                }
            }
            pause(attempt);
        }
    }

    /** Waits for a random time, longer after more attempts, so that who conflicts comes apart. */
    private static void pause(int attempt) {
        int doublings = Math.min(attempt - ATTEMPTS_AT_ONCE, DOUBLINGS_MAX);
        if (doublings < 0) {
            Thread.yield();
        } else {
            LockSupport.parkNanos(
                    ThreadLocalRandom.current().nextLong(PAUSE_NANOS << doublings));
        }
    }

    /** Brings what is in memory to where it stays, which shortens the next open. */
    public void flush() {
        Native.flush(number);
    }

    /** Makes all that was written survive the loss of power. */
    public void persist() {
        Native.persist(number);
    }

    /** Makes a copy of the store as it is now, in a directory that does not exist. */
    public void checkpoint(Path directory) {
        Native.checkpoint(number, directory.toString());
    }

    /** Counts and sizes, as JSON. */
    public String statsJson() {
        return Native.stats(number);
    }

    /**
     * Closes the store, after calls that are under way. All that was made from it ends. Does
     * nothing if it is closed.
     */
    @Override
    public void close() {
        closing();
        try {
            Native.close(number);
        } finally {
            super.close();
        }
    }

    @Override
    public String toString() {
        return "store " + path;
    }
}
