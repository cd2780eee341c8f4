package io.gabion.kafka;

import java.util.Arrays;

/** Keys in the order of their unsigned bytes. */
final class Keys {
    private Keys() {}

    /** The key right after one; null for null, which is no bound. */
    static byte[] after(byte[] key) {
        return key == null ? null : Arrays.copyOf(key, key.length + 1);
    }

    /** The first key after all that begin with a prefix; null if there is none. */
    static byte[] afterPrefix(byte[] prefix) {
        int length = prefix.length;
        while (length > 0 && prefix[length - 1] == (byte) 0xff) {
            length--;
        }
        if (length == 0) {
            return null;
        }
        byte[] after = Arrays.copyOf(prefix, length);
        after[length - 1]++;
        return after;
    }
}
