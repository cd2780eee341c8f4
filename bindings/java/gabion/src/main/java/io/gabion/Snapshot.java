package io.gabion;

/**
 * A store as it was at one moment. It costs nothing to make; while it is open, the store keeps what
 * it sees. Any number of threads may use it.
 */
public final class Snapshot extends View {
    Snapshot(Store store) {
        super(store, Native.snapshot(store.number), "a snapshot of " + store);
    }
}
