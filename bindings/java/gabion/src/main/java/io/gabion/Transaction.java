package io.gabion;

import java.time.Duration;
import java.time.Instant;
import java.util.Objects;

/**
 * Reads of one moment and writes that take effect together, or not at all. Transactions lock
 * nothing: one that has read what somebody else has changed since fails at its {@link #commit} with
 * a {@link ConflictException}, and is to be run again, as {@link Store#transact} does. Closing one
 * rolls it back.
 */
public final class Transaction extends View {
    Transaction(Store store, TransactionOptions options) {
        super(store, Native.begin(store.number, options.packed()), "a transaction of " + store);
    }

    /** As {@link #get}; conflicts with whoever writes the key, at any {@link Isolation}. */
    public byte[] getForUpdate(Keyspace keyspace, byte[] key) {
        return Native.getForUpdate(number, keyspace.number, Objects.requireNonNull(key));
    }

    /** As {@link Keyspace#put}. */
    public void put(Keyspace keyspace, byte[] key, byte[] value) {
        Native.put(
                number, keyspace.number, Objects.requireNonNull(key),
                Objects.requireNonNull(value));
    }

    /** As {@link Keyspace#putExpiring(byte[], byte[], Duration)}. */
    public void putExpiring(Keyspace keyspace, byte[] key, byte[] value, Duration after) {
        Native.putExpiring(number, keyspace.number, key, value, after.toMillis(), false);
    }

    /** As {@link Keyspace#putExpiring(byte[], byte[], Instant)}. */
    public void putExpiring(Keyspace keyspace, byte[] key, byte[] value, Instant at) {
        Native.putExpiring(number, keyspace.number, key, value, at.toEpochMilli(), true);
    }

    /** As {@link Keyspace#merge}. */
    public void merge(Keyspace keyspace, byte[] key, byte[] operand) {
        Native.merge(number, keyspace.number, key, operand);
    }

    /** As {@link Keyspace#delete}. */
    public void delete(Keyspace keyspace, byte[] key) {
        Native.delete(number, keyspace.number, Objects.requireNonNull(key));
    }

    /** As {@link Keyspace#deleteRange}. */
    public void deleteRange(Keyspace keyspace, KeyRange range) {
        Native.deleteRange(number, keyspace.number, range.lower, range.upper);
    }

    /** Marks this moment for {@link #rollbackTo}. */
    public long savepoint() {
        return Native.savepoint(number);
    }

    /** Takes back what was written since a savepoint, which stays. */
    public void rollbackTo(long savepoint) {
        Native.rollbackTo(number, savepoint);
    }

    /** Lets the writes take effect. The transaction has ended then, with success or without. */
    public void commit() {
        Native.commit(number, null);
    }

    /** As {@link #commit()}, at a durability. */
    public void commit(Durability durability) {
        Native.commit(number, durability.toString());
    }

    /** Ends it without an effect. Whether it was open. */
    public boolean rollback() {
        return Native.rollback(number);
    }

    @Override
    public void close() {
        Native.rollback(number);
        super.close();
    }
}
