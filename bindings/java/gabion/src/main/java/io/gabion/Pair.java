package io.gabion;

/** A key and its value. */
public final class Pair {
    private final byte[] key;
    private final byte[] value;

    Pair(byte[] key, byte[] value) {
        this.key = key;
        this.value = value;
    }

    /** The key. */
    public byte[] key() {
        return key;
    }

    /** The value. */
    public byte[] value() {
        return value;
    }
}
