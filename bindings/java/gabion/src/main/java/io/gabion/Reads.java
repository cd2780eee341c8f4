package io.gabion;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Objects;

/** Reads that keyspaces, snapshots and transactions have in common. */
final class Reads {
    private Reads() {}

    static int get(long view, Keyspace keyspace, ByteBuffer key, ByteBuffer value) {
        int length;
        if (key.isDirect() && value.isDirect()) {
            length = Native.getBuffer(
                    view, keyspace.number, key, key.position(), key.remaining(),
                    value, value.position(), value.remaining());
            if (length >= 0 && length <= value.remaining()) {
                value.limit(value.position() + length);
            }
            Reference.reachabilityFence(key);
            Reference.reachabilityFence(value);
        } else {
            byte[] found = Native.get(view, keyspace.number, bytes(key));
            length = found == null ? -1 : found.length;
            if (found != null && length <= value.remaining()) {
                value.duplicate().put(found);
                value.limit(value.position() + length);
            }
        }
        if (length >= 0) {
            key.position(key.limit());
        }
        return length;
    }

    static List<byte[]> multiGet(long view, Keyspace keyspace, Collection<byte[]> keys) {
        Packer packer = new Packer(32 * keys.size());
        keys.forEach(packer::add);
        byte[] answers = Native.multiGet(view, keyspace.number, packer.toBytes());
        List<byte[]> values = new ArrayList<>(keys.size());
        int at = 0;
        while (at < answers.length) {
            int length = Packer.intAt(answers, at);
            at += 4;
            values.add(length < 0 ? null : Arrays.copyOfRange(answers, at, at + length));
            at += Math.max(length, 0);
        }
        return values;
    }

    static Instant expiresAt(long view, Keyspace keyspace, byte[] key) {
        long millis = Native.expiresAt(view, keyspace.number, Objects.requireNonNull(key));
        return millis < 0 ? null : Instant.ofEpochMilli(millis);
    }

    static byte[] bytes(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }
}
