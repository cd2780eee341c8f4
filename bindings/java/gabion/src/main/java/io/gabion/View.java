package io.gabion;

import java.time.Instant;
import java.util.Collection;
import java.util.List;
import java.util.Objects;

/** What reads the keyspaces of a store at one moment: a {@link Snapshot}, a {@link Transaction}. */
public abstract class View extends Handle {
    /** Keeps the store open. */
    final Store store;

    View(Store store, long number, String what) {
        super(number, what);
        this.store = store;
    }

    /** The value of a key; null if it is not there. */
    public final byte[] get(Keyspace keyspace, byte[] key) {
        return Native.get(number, keyspace.number, Objects.requireNonNull(key));
    }

    /** Whether a key is there. Costs as much as {@link #get}. */
    public final boolean contains(Keyspace keyspace, byte[] key) {
        return Native.contains(number, keyspace.number, Objects.requireNonNull(key));
    }

    /** The values of keys, in their order, null for those that are not there. */
    public final List<byte[]> multiGet(Keyspace keyspace, Collection<byte[]> keys) {
        return Reads.multiGet(number, keyspace, keys);
    }

    /** When a key expires; null if it does not or is not there. */
    public final Instant expiresAt(Keyspace keyspace, byte[] key) {
        return Reads.expiresAt(number, keyspace, key);
    }

    /** The pairs of a range, first keys first. */
    public final PairIterator iterator(Keyspace keyspace, KeyRange range) {
        return new PairIterator(this, number, keyspace, range, false);
    }

    /** The pairs of a range, last keys first. */
    public final PairIterator reversed(Keyspace keyspace, KeyRange range) {
        return new PairIterator(this, number, keyspace, range, true);
    }
}
