package io.gabion;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.Arrays;

/** Bytes that are gathered for one crossing. Numbers are little-endian. */
final class Packer {
    private static final VarHandle INT =
            MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);
    private static final VarHandle LONG =
            MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

    /** As the largest arrays of the VM. */
    private static final int LENGTH_MAX = Integer.MAX_VALUE - 8;

    byte[] bytes;
    int length;

    Packer(int room) {
        bytes = new byte[room];
    }

    static int intAt(byte[] bytes, int at) {
        return (int) INT.get(bytes, at);
    }

    Packer add(byte one) {
        reserve(1);
        bytes[length++] = one;
        return this;
    }

    Packer add(int number) {
        reserve(4);
        INT.set(bytes, length, number);
        length += 4;
        return this;
    }

    Packer add(long number) {
        reserve(8);
        LONG.set(bytes, length, number);
        length += 8;
        return this;
    }

    /** Adds a text: its length and its bytes. */
    Packer add(byte[] text) {
        reserve(4L + text.length);
        add(text.length);
        System.arraycopy(text, 0, bytes, length, text.length);
        length += text.length;
        return this;
    }

    byte[] toBytes() {
        return Arrays.copyOf(bytes, length);
    }

    private void reserve(long more) {
        long needed = length + more;
        if (needed > bytes.length) {
            if (needed > LENGTH_MAX) {
                throw GabionException.of(
                        Code.LIMIT, "a batch or a request has more than " + LENGTH_MAX + " bytes");
            }
            long room = Math.max(needed, Math.min(2L * bytes.length, LENGTH_MAX));
            bytes = Arrays.copyOf(bytes, (int) room);
        }
    }
}
