package io.gabion.kafka;

import java.nio.ByteBuffer;
import java.util.Objects;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.internals.InternalProcessorContext;
import org.apache.kafka.streams.processor.internals.ProcessorContextUtils;
import org.apache.kafka.streams.processor.internals.metrics.TaskMetrics;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;

/**
 * A store that keeps the versions of each key for a history of stream time.
 *
 * <p>Two kinds of keys: {@code v}, length and bytes of the key, timestamp, is a version, whose
 * value begins with 1, or is 0 alone for a delete; {@code e}, moment, key, timestamp, says that a
 * version has ended at that moment: at the next version, or, for a delete, at once. When the
 * history has left a moment behind, what ended at it is removed. So the versions of a key lie
 * together, and expired ones are found without a look at the others.
 */
final class VersionedStore extends PartStore implements VersionedKeyValueStore<Bytes, byte[]> {
    private static final byte VERSION = 'v';
    private static final byte END = 'e';
    private static final byte[] DELETE = {0};

    private final long history;
    private long streamTime = -1;
    private InternalProcessorContext<?, ?> context;
    private Sensor dropped;

    VersionedStore(String name, long history) {
        super(name);
        this.history = history;
    }

    @Override
    public void init(StateStoreContext context, StateStore root) {
        this.context = ProcessorContextUtils.asInternalProcessorContext(context);
        this.dropped = TaskMetrics.droppedRecordsSensor(
                Thread.currentThread().getName(), context.taskId().toString(),
                ProcessorContextUtils.metricsImpl(context));
        streamTime = -1;
        super.init(context, root);
    }

    private static byte[] versionKey(byte[] key, long time) {
        return ByteBuffer.allocate(1 + 4 + key.length + 8)
                .put(VERSION).putInt(key.length).put(key).putLong(time).array();
    }

    private static byte[] endKey(long moment, byte[] key, long time) {
        return ByteBuffer.allocate(1 + 8 + 4 + key.length + 8)
                .put(END).putLong(moment).putInt(key.length).put(key).putLong(time).array();
    }

    private static long timeOf(Bytes stored) {
        return ByteBuffer.wrap(stored.get()).getLong(stored.get().length - 8);
    }

    private static byte[] value(byte[] stored) {
        return stored.length == 1 && stored[0] == 0
                ? null : java.util.Arrays.copyOfRange(stored, 1, stored.length);
    }

    private static byte[] stored(byte[] value) {
        return value == null
                ? DELETE : ByteBuffer.allocate(1 + value.length).put((byte) 1).put(value).array();
    }

    /** The version of a key at a time, or the last one before; null if there is none. */
    private KeyValue<Bytes, byte[]> at(byte[] key, long time) {
        byte[] below = Keys.after(versionKey(key, time));
        try (KeyValueIterator<Bytes, byte[]> before =
                part.scan(versionKey(key, 0), below, true)) {
            return before.hasNext() ? before.next() : null;
        }
    }

    /** The time of the first version of a key after a time; -1 if there is none. */
    private long after(byte[] key, long time) {
        byte[] first = Keys.after(versionKey(key, time));
        byte[] below = Keys.after(versionKey(key, Long.MAX_VALUE));
        try (KeyValueIterator<Bytes, byte[]> later = part.scan(first, below, false)) {
            return later.hasNext() ? timeOf(later.peekNextKey()) : -1;
        }
    }

    private interface Write {
        void put(byte[] key, byte[] value);
    }

    /** Writes a version, and what it ends. The time of the next one; -1 if it is the last. */
    private long write(byte[] key, byte[] value, long time, Write write) {
        streamTime = Math.max(streamTime, time);
        KeyValue<Bytes, byte[]> before = time == 0 ? null : at(key, time - 1);
        long next = after(key, time);
        write.put(versionKey(key, time), stored(value));
        if (before != null) {
            write.put(endKey(time, key, timeOf(before.key)), DELETE);
        }
        if (next >= 0) {
            write.put(endKey(next, key, time), DELETE);
        }
        if (value == null) {
            write.put(endKey(time, key, time), DELETE);
        }
        expire(write);
        return next < 0 ? PUT_RETURN_CODE_VALID_TO_UNDEFINED : next;
    }

    /** Removes versions that ended before the history. */
    private void expire(Write write) {
        long live = streamTime - history;
        if (live <= 0) {
            return;
        }
        byte[] first = {END};
        byte[] below = ByteBuffer.allocate(1 + 8).put(END).putLong(live).array();
        try (KeyValueIterator<Bytes, byte[]> ended = part.scan(first, below, false)) {
            while (ended.hasNext()) {
                byte[] end = ended.next().key.get();
                ByteBuffer version = ByteBuffer.allocate(end.length - 8)
                        .put(VERSION).put(end, 1 + 8, end.length - 1 - 8);
                byte[] key = version.array();
                if (hasEnded(end, key)) {
                    write.put(key, null);
                }
                write.put(end, null);
            }
        }
    }

    /** A delete is a delete only as long as nobody has put another version at its time. */
    private boolean hasEnded(byte[] end, byte[] version) {
        long moment = ByteBuffer.wrap(end).getLong(1);
        byte[] found = part.get(version);
        return found != null
                && (moment != ByteBuffer.wrap(version).getLong(version.length - 8)
                        || value(found) == null);
    }

    private boolean isExpired(long time) {
        return time < streamTime - history;
    }

    @Override
    public long put(Bytes key, byte[] value, long timestamp) {
        Objects.requireNonNull(key, "key cannot be null");
        part.requireOpen();
        if (isExpired(timestamp)) {
            dropped.record(1.0, context.currentSystemTimeMs());
            part.pass();
            return PUT_RETURN_CODE_NOT_PUT;
        }
        return write(key.get(), value, timestamp, part::put);
    }

    @Override
    public VersionedRecord<byte[]> delete(Bytes key, long timestamp) {
        Objects.requireNonNull(key, "key cannot be null");
        part.requireOpen();
        if (isExpired(timestamp)) {
            dropped.record(1.0, context.currentSystemTimeMs());
            part.pass();
            return null;
        }
        VersionedRecord<byte[]> old = get(key, timestamp);
        write(key.get(), null, timestamp, part::put);
        return old;
    }

    @Override
    public VersionedRecord<byte[]> get(Bytes key) {
        return get(key, Long.MAX_VALUE);
    }

    @Override
    public VersionedRecord<byte[]> get(Bytes key, long asOf) {
        Objects.requireNonNull(key, "key cannot be null");
        part.requireOpen();
        KeyValue<Bytes, byte[]> found = asOf < 0 ? null : at(key.get(), asOf);
        byte[] value = found == null ? null : value(found.value);
        if (value == null) {
            return null;
        }
        long time = timeOf(found.key);
        long next = asOf == Long.MAX_VALUE ? -1 : after(key.get(), time);
        if (next < 0) {
            return new VersionedRecord<>(value, time);
        }
        // What has ended is history, which is shown as far as it is kept.
        return isExpired(asOf) ? null : new VersionedRecord<>(value, time, next);
    }

    @Override
    void restore(ConsumerRecord<byte[], byte[]> record) {
        if (!isExpired(record.timestamp())) {
            write(record.key(), record.value(), record.timestamp(), part::restore);
        }
    }
}
