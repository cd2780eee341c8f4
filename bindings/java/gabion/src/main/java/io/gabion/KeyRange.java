package io.gabion;

import java.util.Arrays;
import java.util.Objects;

/** A range of keys, in the order of their unsigned bytes. */
public final class KeyRange {
    private static final KeyRange ALL = new KeyRange(null, null);

    /** The first key; null for no bound. */
    final byte[] lower;

    /** The key below which the range ends; null for no bound. */
    final byte[] upper;

    private KeyRange(byte[] lower, byte[] upper) {
        this.lower = lower;
        this.upper = upper;
    }

    /** All keys. */
    public static KeyRange all() {
        return ALL;
    }

    /** The keys from {@code lower} on and below {@code upper}; null for no bound. */
    public static KeyRange of(byte[] lower, byte[] upper) {
        return new KeyRange(copy(lower), copy(upper));
    }

    /** The keys from {@code lower} to {@code upper}, both of them included; null for no bound. */
    public static KeyRange closed(byte[] lower, byte[] upper) {
        // The next key after one is that with a zero behind it.
        return new KeyRange(
                copy(lower), upper == null ? null : Arrays.copyOf(upper, upper.length + 1));
    }

    /** The keys that begin with {@code prefix}. */
    public static KeyRange prefix(byte[] prefix) {
        int length = Objects.requireNonNull(prefix).length;
        while (length > 0 && prefix[length - 1] == (byte) 0xff) {
            length--;
        }
        if (length == 0) {
            return new KeyRange(prefix.clone(), null);
        }
        byte[] upper = Arrays.copyOf(prefix, length);
        upper[length - 1]++;
        return new KeyRange(prefix.clone(), upper);
    }

    private static byte[] copy(byte[] key) {
        return key == null ? null : key.clone();
    }
}
