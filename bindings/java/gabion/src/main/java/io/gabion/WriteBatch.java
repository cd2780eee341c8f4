package io.gabion;

import java.time.Duration;
import java.time.Instant;
import java.util.Objects;

/**
 * Writes to any keyspaces of a store that take effect together, and cross into the store together.
 * Later ones win. One thread at a time may use a batch. It holds nothing that must be closed.
 */
public final class WriteBatch {
    private static final byte PUT = 0;
    private static final byte DELETE = 1;
    private static final byte MERGE = 2;
    private static final byte PUT_EXPIRING_AFTER = 3;
    private static final byte PUT_EXPIRING_AT = 4;
    private static final byte DELETE_BETWEEN = 5;
    private static final byte DELETE_FROM = 6;
    private static final byte DELETE_BELOW = 7;
    private static final byte DELETE_ALL = 8;
    private static final byte[] NONE = {};

    private final Packer packer = new Packer(256);
    private int count;

    /** A batch without writes. */
    public WriteBatch() {}

    /** Gives a key a value. */
    public WriteBatch put(Keyspace keyspace, byte[] key, byte[] value) {
        return add(PUT, keyspace, key, value);
    }

    /** Gives a key a value that expires after some time. */
    public WriteBatch putExpiring(Keyspace keyspace, byte[] key, byte[] value, Duration after) {
        return addExpiring(PUT_EXPIRING_AFTER, keyspace, key, value, after.toMillis());
    }

    /** Gives a key a value that expires at a moment. */
    public WriteBatch putExpiring(Keyspace keyspace, byte[] key, byte[] value, Instant at) {
        return addExpiring(PUT_EXPIRING_AT, keyspace, key, value, at.toEpochMilli());
    }

    /** Merges an operand into the value of a key. */
    public WriteBatch merge(Keyspace keyspace, byte[] key, byte[] operand) {
        return add(MERGE, keyspace, key, operand);
    }

    /** Removes a key. */
    public WriteBatch delete(Keyspace keyspace, byte[] key) {
        Objects.requireNonNull(key);
        packer.add(DELETE).add(keyspace.number).add(key);
        count++;
        return this;
    }

    /** Removes the keys of a range, also those that the batch has put there before. */
    public WriteBatch deleteRange(Keyspace keyspace, KeyRange range) {
        byte kind =
                range.lower == null
                        ? (range.upper == null ? DELETE_ALL : DELETE_BELOW)
                        : (range.upper == null ? DELETE_FROM : DELETE_BETWEEN);
        return add(
                kind, keyspace, range.lower == null ? NONE : range.lower,
                range.upper == null ? NONE : range.upper);
    }

    /** How many writes there are. */
    public int count() {
        return count;
    }

    /** How many bytes they have, with some for each write. */
    public int bytes() {
        return packer.length;
    }

    /** Removes all writes and keeps the memory. */
    public void clear() {
        packer.length = 0;
        count = 0;
    }

    void write(Store store, Durability durability) {
        String word = durability == null ? null : durability.toString();
        Native.write(store.number, packer.bytes, packer.length, word);
    }

    private WriteBatch add(byte kind, Keyspace keyspace, byte[] key, byte[] value) {
        Objects.requireNonNull(key);
        Objects.requireNonNull(value);
        packer.add(kind).add(keyspace.number).add(key).add(value);
        count++;
        return this;
    }

    private WriteBatch addExpiring(
            byte kind, Keyspace keyspace, byte[] key, byte[] value, long millis) {
        Objects.requireNonNull(key);
        Objects.requireNonNull(value);
        packer.add(kind).add(keyspace.number).add(Math.max(millis, 0)).add(key).add(value);
        count++;
        return this;
    }
}
