package io.gabion;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.time.Instant;
import java.util.Collection;
import java.util.List;
import java.util.Objects;

/**
 * Pairs of keys and values under a name. Any bytes are a key of up to 65,535 bytes or a value of up
 * to 1 GiB. A keyspace is open as long as its store; any number of threads may use it.
 */
public final class Keyspace {
    final long number;
    private final Store store;
    private final String name;

    Keyspace(Store store, String name, long number) {
        this.store = store;
        this.name = name;
        this.number = number;
    }

    /** Its name. */
    public String name() {
        return name;
    }

    /** The store that it is of. */
    public Store store() {
        return store;
    }

    /** The value of a key; null if it is not there. */
    public byte[] get(byte[] key) {
        return Native.get(0, number, Objects.requireNonNull(key));
    }

    /**
     * Puts the value of the key that remains in a buffer into what remains of another one. Buffers
     * that are direct cost no arrays.
     *
     * @return the length of the value; -1 if the key is not there. Where the value fits, it lies
     *     between the buffer's position and its limit; otherwise the buffer stays as it is.
     */
    public int get(ByteBuffer key, ByteBuffer value) {
        return Reads.get(0, this, key, value);
    }

    /** Whether a key is there. Costs as much as {@link #get(byte[])}. */
    public boolean contains(byte[] key) {
        return Native.contains(0, number, Objects.requireNonNull(key));
    }

    /** The values of keys at one moment, in their order, null for those that are not there. */
    public List<byte[]> multiGet(Collection<byte[]> keys) {
        return Reads.multiGet(0, this, keys);
    }

    /** When a key expires; null if it does not or is not there. */
    public Instant expiresAt(byte[] key) {
        return Reads.expiresAt(0, this, key);
    }

    /** Gives a key a value. */
    public void put(byte[] key, byte[] value) {
        Native.put(0, number, Objects.requireNonNull(key), Objects.requireNonNull(value));
    }

    /** Gives the key that remains in a buffer the value that remains in another one. */
    public void put(ByteBuffer key, ByteBuffer value) {
        if (key.isDirect() && value.isDirect()) {
            Native.putBuffer(
                    0, number, key, key.position(), key.remaining(),
                    value, value.position(), value.remaining());
            Reference.reachabilityFence(key);
            Reference.reachabilityFence(value);
        } else {
            Native.put(0, number, Reads.bytes(key), Reads.bytes(value));
        }
        key.position(key.limit());
        value.position(value.limit());
    }

    /** Gives a key a value that expires after some time: from then on it is as if deleted. */
    public void putExpiring(byte[] key, byte[] value, Duration after) {
        Native.putExpiring(0, number, key, value, after.toMillis(), false);
    }

    /** Gives a key a value that expires at a moment. */
    public void putExpiring(byte[] key, byte[] value, Instant at) {
        Native.putExpiring(0, number, key, value, at.toEpochMilli(), true);
    }

    /** Merges an operand into the value of a key, as {@link KeyspaceOptions#merge} says. */
    public void merge(byte[] key, byte[] operand) {
        Native.merge(0, number, key, operand);
    }

    /** Removes a key and its value, if it is there. */
    public void delete(byte[] key) {
        Native.delete(0, number, Objects.requireNonNull(key));
    }

    /** Removes all keys of a range at one moment. Costs the same however many there are. */
    public void deleteRange(KeyRange range) {
        Native.deleteRange(0, number, range.lower, range.upper);
    }

    /**
     * Changes the value of a key from {@code expected} to {@code value}, where null stands for no
     * value. Whether it did: if the key has another value, nothing happens.
     */
    public boolean compareAndSwap(byte[] key, byte[] expected, byte[] value) {
        return Native.compareAndSwap(number, Objects.requireNonNull(key), expected, value);
    }

    /** All pairs, first keys first, as they are now. */
    public PairIterator iterator() {
        return iterator(KeyRange.all());
    }

    /** The pairs of a range, first keys first, as they are now. */
    public PairIterator iterator(KeyRange range) {
        return new PairIterator(store, 0, this, range, false);
    }

    /** The pairs of a range, last keys first, as they are now. */
    public PairIterator reversed(KeyRange range) {
        return new PairIterator(store, 0, this, range, true);
    }

    @Override
    public String toString() {
        return "keyspace " + name + " of " + store;
    }
}
