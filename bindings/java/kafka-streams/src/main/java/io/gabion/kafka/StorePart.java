package io.gabion.kafka;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.gabion.GabionException;
import io.gabion.KeyRange;
import io.gabion.Keyspace;
import io.gabion.PairIterator;
import io.gabion.WriteBatch;
import java.io.File;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Objects;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.errors.TaskCorruptedException;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.internals.ChangelogRecordDeserializationHelper;
import org.apache.kafka.streams.processor.internals.InternalProcessorContext;
import org.apache.kafka.streams.processor.internals.RecordBatchingStateRestoreCallback;
import org.apache.kafka.streams.processor.internals.RecordCollector;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.internals.PositionSerde;
import org.apache.kafka.streams.state.internals.StoreQueryUtils;

/**
 * The part that one state store has in a {@link SharedStore}: its pairs, its offsets in the
 * changelog, its position.
 *
 * <p>Writes wait in memory and go to the store in one batch with the offset up to which they are in
 * the changelog. So what is on the medium is at any moment what the changelog says up to that
 * offset, or newer, and after a kill Kafka restores what follows: never more, and never all of it.
 *
 * <p>When a batch is written:
 *
 * <ul>
 *   <li>Under at-least-once, by {@link #commit}, and earlier where much waits: what is newer than
 *       the offset is then restored once more, which changes nothing.
 *   <li>Under exactly-once only what is committed may be there, as nobody takes back the rest.
 *       {@link TaskCommits} tells: writes wait until the first one after the commit, or the close.
 *       Where one transaction has more than may wait, it is written with a mark, and a kill before
 *       the next batch makes Kafka restore the task from its beginning.
 *   <li>What comes from the changelog is committed, and makes sure that what waits is, too: a task
 *       that restores has ended well what it did before.
 * </ul>
 *
 * <p>One thread at a time writes, that of the task; any thread reads.
 */
final class StorePart {
    private static final long UNCOMMITTED_BYTES_MAX = 32 << 20;
    private static final byte[] DELETED = {};
    private static final String OFFSET = "o";
    private static final String POSITION = "p";
    private static final String UNPROVEN = "u";

    private final String name;
    private final NavigableMap<byte[], byte[]> waiting = new TreeMap<>(Arrays::compareUnsigned);
    private final List<KeyRange> waitingDeletes = new ArrayList<>();
    private final Set<Iterator> iterators = Collections.synchronizedSet(new HashSet<>());

    private Position position = Position.emptyPosition();
    private StateStoreContext context;
    private File stateDir;
    private SharedStore shared;
    private Keyspace keyspace;
    private volatile boolean isOpen;
    private boolean isConsistent;
    private long waitingBytes;
    private long waitingBytesMax;

    /** Under exactly-once, of a task that has a changelog for this store; null elsewhere. */
    private InternalProcessorContext<?, ?> transactional;

    private TopicPartition changelog;
    private TaskCommits commits;
    private long seenCommits;

    /** Whether something waits that may not be committed. */
    private boolean isUnproven;

    /** Whether Kafka gave up the state, so that nothing of it is to be kept. */
    private boolean isGivenUp;

    /** Whether the medium has the mark of writes that may not be committed. */
    private boolean isMarked;

    StorePart(String name) {
        this.name = name;
    }

    /** Opens it and registers the store with what applies a record of the changelog. */
    void init(
            StateStoreContext context, StateStore root,
            Consumer<ConsumerRecord<byte[], byte[]>> restore) {
        this.context = context;
        this.stateDir = context.stateDir();
        Map<String, Object> configs = context.appConfigs();
        Object max = configs.get(SharedStore.UNCOMMITTED_BYTES_MAX);
        waitingBytesMax = max == null ? UNCOMMITTED_BYTES_MAX : Long.parseLong(max.toString());
        isConsistent = StreamsConfig.InternalConfig.getBoolean(
                configs, StreamsConfig.InternalConfig.IQ_CONSISTENCY_OFFSET_VECTOR_ENABLED, false);
        TaskId task = context.taskId();
        boolean isExactlyOnce = StreamsConfig.EXACTLY_ONCE_V2.equals(
                configs.get(StreamsConfig.PROCESSING_GUARANTEE_CONFIG));
        if (isExactlyOnce && context instanceof RecordCollector.Supplier) {
            InternalProcessorContext<?, ?> own = (InternalProcessorContext<?, ?>) context;
            String topic = own.changelogFor(name);
            if (topic != null) {
                transactional = own;
                changelog = new TopicPartition(topic, task.partition());
                commits = TaskCommits.of(own);
            }
        }
        shared = SharedStore.acquire(stateDir, task, configs);
        try {
            keyspace = shared.find(stateDir, name);
            isOpen = true;
            isGivenUp = false;
            byte[] stored = meta(POSITION);
            if (stored != null) {
                position = PositionSerde.deserialize(ByteBuffer.wrap(stored));
            }
            isMarked = meta(UNPROVEN) != null;
            if (isMarked && transactional != null) {
                throw new TaskCorruptedException(Set.of(task), new ProcessorStateException(
                        "The store " + name + " was killed within a transaction of more bytes than "
                                + SharedStore.UNCOMMITTED_BYTES_MAX + ", and is restored whole"));
            }
            RecordBatchingStateRestoreCallback callback = records -> restore(records, restore);
            context.register(root, callback, () -> {});
        } catch (RuntimeException failure) {
            close();
            throw failure;
        }
    }

    String name() {
        return name;
    }

    boolean isOpen() {
        return isOpen;
    }

    Position position() {
        return position;
    }

    StateStoreContext context() {
        return context;
    }

    void requireOpen() {
        if (!isOpen) {
            throw new InvalidStateStoreException("Store " + name + " is currently closed");
        }
    }

    private byte[] meta(String kind) {
        return keyspace == null ? null : shared.meta().get(SharedStore.metaKey(keyspace, kind));
    }

    /** The value of a key; null if it is not there. */
    byte[] get(byte[] key) {
        Keyspace stored;
        synchronized (this) {
            requireOpen();
            byte[] value = waiting.get(key);
            if (value != null) {
                return value == DELETED ? null : value;
            }
            stored = keyspace;
        }
        // What has gone to the store since is there.
        return stored == null ? null : calling(() -> stored.get(key));
    }

    /** Gives a key a value, or removes it where that is null, while a record is processed. */
    void put(byte[] key, byte[] value) {
        synchronized (position) {
            synchronized (this) {
                requireOpen();
                beforeWrite();
                write(key, value);
            }
            StoreQueryUtils.updatePosition(position, context);
        }
    }

    /** Counts as seen what is not written, since it is too old. */
    void pass() {
        synchronized (position) {
            StoreQueryUtils.updatePosition(position, context);
        }
    }

    /** Removes a range that nobody reads or writes again. */
    synchronized void forget(KeyRange range, byte[] first, byte[] below) {
        NavigableMap<byte[], byte[]> inside = waiting.subMap(first, true, below, false);
        inside.forEach((key, value) -> waitingBytes -= key.length + value.length);
        inside.clear();
        waitingDeletes.add(range);
    }

    private void write(byte[] key, byte[] value) {
        byte[] own = value == null ? DELETED : value.length == 0 ? new byte[0] : value;
        byte[] old = waiting.put(key, own);
        waitingBytes += own.length + (old == null ? key.length : -old.length);
        if (isOpen && waitingBytes > waitingBytesMax) {
            flush(null, isUnproven);
        }
    }

    private void beforeWrite() {
        if (transactional != null) {
            long seen = commits.beforeWrite(transactional);
            if (seen != seenCommits) {
                seenCommits = seen;
                flushCommitted();
            }
            isUnproven = true;
        }
    }

    /** Writes what waits, all of which is committed, with the offset of its last record. */
    private void flushCommitted() {
        RecordCollector collector = ((RecordCollector.Supplier) transactional).recordCollector();
        Long offset = collector == null ? null : collector.offsets().get(changelog);
        isUnproven = false;
        flush(offset == null ? null : Collections.singletonMap(changelog, offset), false);
    }

    private void restore(
            Collection<ConsumerRecord<byte[], byte[]>> records,
            Consumer<ConsumerRecord<byte[], byte[]>> apply) {
        synchronized (position) {
            synchronized (this) {
                isUnproven = false;
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    ChangelogRecordDeserializationHelper.applyChecksAndUpdatePosition(
                            record, isConsistent, position);
                    apply.accept(record);
                }
            }
        }
    }

    /** As {@link #put}, of a record of the changelog. */
    void restore(byte[] key, byte[] value) {
        write(key, value);
    }

    /** What Kafka asks for as {@link StateStore#commit}. */
    synchronized void commit(Map<TopicPartition, Long> offsets) {
        if (!isOpen) {
            return;
        }
        if (transactional != null && offsets.isEmpty()) {
            isGivenUp = true;
        } else if (transactional != null && isUnproven) {
            return;
        }
        flush(offsets, false);
    }

    /** The offset that was last written for a partition. */
    synchronized Long committedOffset(TopicPartition partition) {
        requireOpen();
        byte[] stored = meta(OFFSET + partition);
        return stored == null ? null : ByteBuffer.wrap(stored).getLong();
    }

    /** Writes what waits as one, with offsets; null for those that are there. */
    private void flush(Map<TopicPartition, Long> offsets, boolean isMark) {
        boolean wipes = offsets != null && offsets.isEmpty();
        if (waiting.isEmpty() && waitingDeletes.isEmpty() && !isMarked
                && (offsets == null || (wipes ? keyspace == null : isWritten(offsets)))) {
            return;
        }
        calling(() -> {
            WriteBatch batch = new WriteBatch();
            boolean isNew = keyspace == null;
            Keyspace own = isNew ? shared.add(stateDir, name, batch) : keyspace;
            waitingDeletes.forEach(range -> batch.deleteRange(own, range));
            waiting.forEach((key, value) -> {
                if (value == DELETED) {
                    batch.delete(own, key);
                } else {
                    batch.put(own, key, value);
                }
            });
            Keyspace meta = shared.meta();
            byte[] seen = PositionSerde.serialize(position).array();
            batch.put(meta, SharedStore.metaKey(own, POSITION), seen);
            if (isMark) {
                batch.put(meta, SharedStore.metaKey(own, UNPROVEN), DELETED);
            } else if (isMarked) {
                batch.delete(meta, SharedStore.metaKey(own, UNPROVEN));
            }
            if (wipes) {
                byte[] prefix = SharedStore.metaKey(own, OFFSET);
                batch.deleteRange(meta, KeyRange.prefix(prefix));
            } else if (offsets != null) {
                offsets.forEach((partition, offset) -> {
                    byte[] key = SharedStore.metaKey(own, OFFSET + partition);
                    if (offset == null) {
                        batch.delete(meta, key);
                    } else {
                        batch.put(meta, key, ByteBuffer.allocate(8).putLong(offset).array());
                    }
                });
            }
            shared.store().write(batch);
            if (isNew) {
                shared.mark(stateDir, name, own);
            }
            keyspace = own;
            return null;
        });
        isMarked = isMark;
        waiting.clear();
        waitingDeletes.clear();
        waitingBytes = 0;
    }

    private boolean isWritten(Map<TopicPartition, Long> offsets) {
        return offsets.entrySet().stream()
                .allMatch(one -> Objects.equals(committedOffset(one.getKey()), one.getValue()));
    }

    /** Closes it. What waits is written, but under exactly-once only what is committed. */
    void close() {
        synchronized (this) {
            if (shared == null) {
                return;
            }
            try {
                if (isOpen && transactional == null) {
                    flush(null, false);
                } else if (isOpen && !isGivenUp
                        && (!isUnproven || commits.count(transactional) != seenCommits)) {
                    flushCommitted();
                }
            } finally {
                isOpen = false;
                waiting.clear();
                waitingDeletes.clear();
                waitingBytes = 0;
                isUnproven = false;
                SharedStore own = shared;
                shared = null;
                for (Iterator iterator : new ArrayList<>(iterators)) {
                    iterator.close();
                }
                own.release(keyspace == null ? "" : keyspace.name());
                keyspace = null;
            }
        }
    }

    /**
     * The pairs from a key on and below another one, null for no bound, as they are now. A closed
     * part has none, but for what is restored into it.
     */
    KeyValueIterator<Bytes, byte[]> scan(byte[] first, byte[] below, boolean isReversed) {
        synchronized (this) {
            List<Map.Entry<byte[], byte[]>> own = new ArrayList<>();
            NavigableMap<byte[], byte[]> inside =
                    first == null ? waiting : waiting.tailMap(first, true);
            boolean isEmpty =
                    first != null && below != null && Arrays.compareUnsigned(first, below) >= 0;
            if (!isEmpty) {
                inside = below == null ? inside : inside.headMap(below, false);
                (isReversed ? inside.descendingMap() : inside)
                        .forEach((key, value) -> own.add(Map.entry(key, value)));
            }
            PairIterator stored = null;
            if (keyspace != null && !isEmpty) {
                KeyRange range = KeyRange.of(first, below);
                Keyspace from = keyspace;
                stored = calling(() -> isReversed ? from.reversed(range) : from.iterator(range));
            }
            Iterator iterator = new Iterator(own, stored, isReversed);
            iterators.add(iterator);
            return iterator;
        }
    }

    private interface Call<T> {
        T run();
    }

    private <T> T calling(Call<T> call) {
        try {
            return call.run();
        } catch (GabionException failure) {
            if (!isOpen) {
                requireOpen();
            }
            throw new ProcessorStateException("Error in the store " + name, failure);
        }
    }

    /** What waits and what is stored, merged: where both have a key, what waits is newer. */
    private final class Iterator implements KeyValueIterator<Bytes, byte[]> {
        private final List<Map.Entry<byte[], byte[]>> own;
        private final PairIterator stored;
        private final boolean isReversed;
        private int at;
        private byte[] storedKey;
        private byte[] key;
        private byte[] value;
        private volatile boolean isClosed;

        Iterator(
                List<Map.Entry<byte[], byte[]>> own, PairIterator stored, boolean isReversed) {
            this.own = own;
            this.stored = stored;
            this.isReversed = isReversed;
        }

        @Override
        public boolean hasNext() {
            if (isClosed) {
                throw new InvalidStateStoreException(
                        "The iterator of store " + name + " has closed");
            }
            while (key == null) {
                if (storedKey == null && stored != null) {
                    storedKey = calling(stored::peekKey);
                }
                Map.Entry<byte[], byte[]> next = at < own.size() ? own.get(at) : null;
                int order = compare(next, storedKey);
                if (next == null && storedKey == null) {
                    return false;
                } else if (order > 0) {
                    key = storedKey;
                    value = stored.next().value();
                    storedKey = null;
                } else {
                    at++;
                    if (order == 0) {
                        stored.next();
                        storedKey = null;
                    }
                    if (next.getValue() != DELETED) {
                        key = next.getKey();
                        value = next.getValue();
                    }
                }
            }
            return true;
        }

        private int compare(Map.Entry<byte[], byte[]> next, byte[] other) {
            if (next == null || other == null) {
                return next == null ? 1 : -1;
            }
            int order = Arrays.compareUnsigned(next.getKey(), other);
            return isReversed ? -order : order;
        }

        @Override
        public org.apache.kafka.streams.KeyValue<Bytes, byte[]> next() {
            if (!hasNext()) {
                throw new java.util.NoSuchElementException();
            }
            byte[] found = key;
            key = null;
            return org.apache.kafka.streams.KeyValue.pair(Bytes.wrap(found), value);
        }

        @Override
        public Bytes peekNextKey() {
            if (!hasNext()) {
                throw new java.util.NoSuchElementException();
            }
            return Bytes.wrap(key);
        }

        @Override
        public void close() {
            isClosed = true;
            iterators.remove(this);
            if (stored != null) {
                stored.close();
            }
        }
    }
}
