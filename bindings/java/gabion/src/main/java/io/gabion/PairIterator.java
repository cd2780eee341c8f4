package io.gabion;

import java.lang.ref.Reference;
import java.util.Arrays;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.Objects;

/**
 * The pairs of a range, in either direction. Those of a keyspace are of the moment at which the
 * iterator was made, those of a snapshot of its moment. One of a transaction shows also what the
 * transaction writes meanwhile.
 *
 * <p>Pairs come in pages, the first ones small, so that few crossings read many of them. An
 * iterator of a transaction, which depends on all that it reads, reads nothing ahead. One thread at
 * a time may use an iterator; any may close it.
 */
public final class PairIterator extends Handle implements Iterator<Pair> {
    private static final int FIRST_PAIRS = 16;
    private static final int PAIRS_MAX = 4096;
    private static final int PAGE_BYTES = 128 << 10;
    private static final byte[] NO_PAGE = {0};

    /** Keeps open what it reads from. */
    private final Object owner;

    private final boolean readsAhead;
    private int pairs;
    private byte[] page = NO_PAGE;
    private int at = 1;

    PairIterator(Object owner, long view, Keyspace keyspace, KeyRange range, boolean isReversed) {
        super(
                Native.pages(view, keyspace.number, range.lower, range.upper, isReversed),
                "an iterator of the keyspace " + keyspace.name());
        this.owner = owner;
        this.readsAhead = !(owner instanceof Transaction);
        this.pairs = readsAhead ? FIRST_PAIRS : 1;
    }

    /**
     * Goes on at {@code key}, or at the first one after it in the iterator's direction. At a key
     * outside of the range there is no next pair.
     */
    public void seek(byte[] key) {
        Native.seek(number, Objects.requireNonNull(key));
        page = NO_PAGE;
        at = 1;
        pairs = readsAhead ? FIRST_PAIRS : 1;
    }

    @Override
    public boolean hasNext() {
        if (isClosed()) {
            throw GabionException.of(Code.CLOSED, "the iterator is closed; make another");
        }
        while (at >= page.length && page[0] == 0) {
            page = Native.page(number, pairs, PAGE_BYTES);
            at = 1;
            if (readsAhead) {
                pairs = Math.min(2 * pairs, PAIRS_MAX);
            }
        }
        Reference.reachabilityFence(owner);
        Reference.reachabilityFence(this);
        return at < page.length;
    }

    @Override
    public Pair next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        byte[] key = text();
        return new Pair(key, text());
    }

    /** The key that {@link #next} will give; null if there is none. */
    public byte[] peekKey() {
        return hasNext() ? Arrays.copyOfRange(page, at + 4, at + 4 + Packer.intAt(page, at)) : null;
    }

    private byte[] text() {
        int from = at + 4;
        at = from + Packer.intAt(page, at);
        return Arrays.copyOfRange(page, from, at);
    }
}
