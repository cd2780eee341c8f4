package io.gabion.kafka;

import io.gabion.KeyRange;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.TreeSet;
import java.util.function.Predicate;
import java.util.function.Supplier;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.internals.InternalProcessorContext;
import org.apache.kafka.streams.processor.internals.ProcessorContextUtils;
import org.apache.kafka.streams.processor.internals.metrics.TaskMetrics;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.internals.SegmentedBytesStore;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What window and session stores have in common: keys with times, of which old ones expire.
 *
 * <p>A key begins with the number of its segment, a part of stream time, and goes on as Kafka's own
 * stores have it: what is read together lies together, segment by segment, and one range delete
 * removes a segment whose retention is over. Between such deletes, expired pairs are not shown.
 */
abstract class SegmentedStore extends PartStore {
    private static final Logger LOGGER = LoggerFactory.getLogger(SegmentedStore.class);
    private static final long SEGMENT_MILLIS_MIN = 60_000;
    private static final int SEGMENT_BYTES = Long.BYTES;

    private final SegmentedBytesStore.KeySchema schema;
    private final long retention;
    private final long segmentMillis;

    /** The segments in which something may be. */
    private final TreeSet<Long> segments = new TreeSet<>();

    private volatile long streamTime = -1;
    private InternalProcessorContext<?, ?> context;
    private Sensor dropped;

    SegmentedStore(String name, long retention, SegmentedBytesStore.KeySchema schema) {
        super(name);
        this.retention = retention;
        this.segmentMillis = segmentMillis(retention);
        this.schema = schema;
    }

    /** How much of stream time a segment has. */
    static long segmentMillis(long retention) {
        return Math.max(retention / 2, SEGMENT_MILLIS_MIN);
    }

    /** Whether a stored key is of a range of keys and of times. */
    abstract boolean isWithin(byte[] stored, Bytes from, Bytes to, long timeFrom, long timeTo);

    @Override
    public void init(StateStoreContext context, StateStore root) {
        this.context = ProcessorContextUtils.asInternalProcessorContext(context);
        this.dropped = TaskMetrics.droppedRecordsSensor(
                Thread.currentThread().getName(), context.taskId().toString(),
                ProcessorContextUtils.metricsImpl(context));
        segments.clear();
        streamTime = -1;
        super.init(context, root);
        synchronized (segments) {
            for (Long next = 0L; next != null; ) {
                byte[] first = segmentKey(next);
                try (KeyValueIterator<Bytes, byte[]> pairs = part.scan(first, null, false)) {
                    next = pairs.hasNext() ? segmentOf(pairs.peekNextKey().get()) : null;
                }
                if (next != null) {
                    segments.add(next++);
                }
            }
        }
    }

    private static byte[] segmentKey(long segment) {
        return ByteBuffer.allocate(SEGMENT_BYTES).putLong(segment).array();
    }

    private static long segmentOf(byte[] key) {
        return ByteBuffer.wrap(key).getLong();
    }

    private byte[] keyIn(long segment, byte[] stored) {
        return ByteBuffer.allocate(SEGMENT_BYTES + stored.length)
                .putLong(segment).put(stored).array();
    }

    private long segmentAt(long time) {
        return Math.floorDiv(time, segmentMillis);
    }

    /** The earliest time that is not expired. */
    private long liveFrom() {
        return streamTime - retention + 1;
    }

    /** Writes a pair, or drops it if its segment is expired. */
    final void write(Bytes stored, byte[] value) {
        long segment = seen(stored.get());
        if (segment < 0) {
            dropped.record(1.0, context.currentSystemTimeMs());
            part.pass();
            return;
        }
        part.put(keyIn(segment, stored.get()), value);
        expire();
    }

    @Override
    void restore(ConsumerRecord<byte[], byte[]> record) {
        long segment = seen(record.key());
        if (segment >= 0) {
            part.restore(keyIn(segment, record.key()), record.value());
            expire();
        }
    }

    /** Lets stream time go on to that of a key. The segment of the key; -1 if it is expired. */
    private long seen(byte[] stored) {
        long time = schema.segmentTimestamp(Bytes.wrap(stored));
        streamTime = Math.max(streamTime, time);
        long segment = segmentAt(time);
        if (segment < segmentAt(streamTime - retention)) {
            return -1;
        }
        synchronized (segments) {
            segments.add(segment);
        }
        return segment;
    }

    /** Removes segments that are expired, together with what is written next. */
    private void expire() {
        long live = segmentAt(streamTime - retention);
        synchronized (segments) {
            if (segments.isEmpty() || segments.first() >= live) {
                return;
            }
            byte[] first = segmentKey(segments.first());
            byte[] below = segmentKey(live);
            segments.headSet(live).clear();
            part.forget(KeyRange.of(first, below), first, below);
        }
    }

    final byte[] read(Bytes stored) {
        long time = schema.segmentTimestamp(stored);
        return time < liveFrom() ? null : part.get(keyIn(segmentAt(time), stored.get()));
    }

    /** The pairs of one key. */
    final KeyValueIterator<Bytes, byte[]> fetch(
            Bytes key, long from, long to, boolean isReversed) {
        long live = Math.max(from, liveFrom());
        return scan(
                schema.lowerRangeFixedSize(key, live), schema.upperRangeFixedSize(key, to),
                live, to, stored -> isWithin(stored, key, key, live, to), isReversed);
    }

    /** The pairs of a range of keys, null for no bound. */
    final KeyValueIterator<Bytes, byte[]> fetch(
            Bytes keyFrom, Bytes keyTo, long from, long to, boolean isReversed) {
        boolean isTurned = keyFrom != null && keyTo != null && keyFrom.compareTo(keyTo) > 0;
        if (isTurned) {
            LOGGER.warn(KeyValueBytesStore.TURNED_RANGE);
        }
        long live = Math.max(from, liveFrom());
        return scan(
                schema.lowerRange(keyFrom, live), schema.upperRange(keyTo, to), live, to,
                stored -> !isTurned && isWithin(stored, keyFrom, keyTo, live, to), isReversed);
    }

    /** The pairs that match in the segments of a range of times, expired or not. */
    final KeyValueIterator<Bytes, byte[]> scanSegments(
            long from, long to, Predicate<byte[]> matches) {
        return new Chain(() -> open(null, null, segmentAt(from), segmentAt(to), false), matches);
    }

    /** The latest time at which the segment of a pair may begin that lies in a range of times. */
    long latestSegmentTime(long to) {
        return to;
    }

    private KeyValueIterator<Bytes, byte[]> scan(
            Bytes lower, Bytes upper, long from, long to, Predicate<byte[]> matches,
            boolean isReversed) {
        long first = segmentAt(from);
        long last = segmentAt(latestSegmentTime(to));
        return new Chain(() -> open(lower, upper, first, last, isReversed), matches);
    }

    /** The pairs of some segments as they are now, in the order in which they are read. */
    private Deque<KeyValueIterator<Bytes, byte[]>> open(
            Bytes lower, Bytes upper, long firstSegment, long lastSegment, boolean isReversed) {
        Deque<KeyValueIterator<Bytes, byte[]>> parts = new ArrayDeque<>();
        synchronized (part) {
            List<Long> searched = new ArrayList<>();
            synchronized (segments) {
                if (firstSegment <= lastSegment) {
                    searched.addAll(segments.subSet(firstSegment, true, lastSegment, true));
                }
            }
            for (long segment : searched) {
                byte[] first = lower == null ? segmentKey(segment) : keyIn(segment, lower.get());
                byte[] below = upper == null
                        ? segmentKey(segment + 1) : Keys.after(keyIn(segment, upper.get()));
                KeyValueIterator<Bytes, byte[]> pairs = part.scan(first, below, isReversed);
                if (isReversed) {
                    parts.addFirst(pairs);
                } else {
                    parts.addLast(pairs);
                }
            }
        }
        return parts;
    }

    /**
     * The pairs of segments, one after the other, without the segments' numbers. They are those of
     * the moment of the first look. Once the store is closed, there is none left.
     */
    private static final class Chain implements KeyValueIterator<Bytes, byte[]> {
        private final Supplier<Deque<KeyValueIterator<Bytes, byte[]>>> open;
        private final Predicate<byte[]> matches;
        private Deque<KeyValueIterator<Bytes, byte[]>> parts;
        private KeyValue<Bytes, byte[]> next;

        Chain(
                Supplier<Deque<KeyValueIterator<Bytes, byte[]>>> open,
                Predicate<byte[]> matches) {
            this.open = open;
            this.matches = matches;
        }

        @Override
        public boolean hasNext() {
            if (parts == null) {
                parts = open.get();
            }
            try {
                while (next == null && !parts.isEmpty()) {
                    advance();
                }
                if (!parts.isEmpty()) {
                    // Tells of a close since.
                    parts.peekFirst().hasNext();
                }
            } catch (InvalidStateStoreException closed) {
                close();
            }
            return next != null;
        }

        private void advance() {
            KeyValueIterator<Bytes, byte[]> pairs = parts.peekFirst();
            if (!pairs.hasNext()) {
                parts.removeFirst().close();
                return;
            }
            KeyValue<Bytes, byte[]> pair = pairs.next();
            byte[] key = pair.key.get();
            byte[] stored = Arrays.copyOfRange(key, SEGMENT_BYTES, key.length);
            if (matches.test(stored)) {
                next = KeyValue.pair(Bytes.wrap(stored), pair.value);
            }
        }

        @Override
        public KeyValue<Bytes, byte[]> next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            KeyValue<Bytes, byte[]> found = next;
            next = null;
            return found;
        }

        @Override
        public Bytes peekNextKey() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            return next.key;
        }

        @Override
        public void close() {
            if (parts != null) {
                parts.forEach(KeyValueIterator::close);
            }
            parts = new ArrayDeque<>();
            next = null;
        }
    }
}
