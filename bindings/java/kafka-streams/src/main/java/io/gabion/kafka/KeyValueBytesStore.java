package io.gabion.kafka;

import java.util.List;
import java.util.Objects;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.TimestampedBytesStore;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A key-value store. */
class KeyValueBytesStore extends PartStore implements KeyValueStore<Bytes, byte[]> {
    private static final Logger LOGGER = LoggerFactory.getLogger(KeyValueBytesStore.class);

    /** What Kafka's stores say, which its tests look for. */
    static final String TURNED_RANGE =
            "Returning empty iterator for fetch with invalid key range: from > to. This may be due "
                    + "to range arguments set in the wrong order, or serdes that don't preserve "
                    + "ordering when lexicographically comparing the serialized bytes. Note that "
                    + "the built-in numerical serdes do not follow this for negative numbers";

    KeyValueBytesStore(String name) {
        super(name);
    }

    /** One whose values begin with a timestamp, which is Kafka's affair. */
    static final class Timestamped extends KeyValueBytesStore implements TimestampedBytesStore {
        Timestamped(String name) {
            super(name);
        }
    }

    @Override
    void restore(ConsumerRecord<byte[], byte[]> record) {
        part.restore(record.key(), record.value());
    }

    @Override
    public void put(Bytes key, byte[] value) {
        Objects.requireNonNull(key, "key cannot be null");
        part.put(key.get(), value);
    }

    @Override
    public synchronized byte[] putIfAbsent(Bytes key, byte[] value) {
        byte[] old = get(key);
        if (old == null) {
            put(key, value);
        }
        return old;
    }

    @Override
    public void putAll(List<KeyValue<Bytes, byte[]>> entries) {
        entries.forEach(entry -> put(entry.key, entry.value));
    }

    @Override
    public synchronized byte[] delete(Bytes key) {
        byte[] old = get(key);
        put(key, null);
        return old;
    }

    @Override
    public byte[] get(Bytes key) {
        return part.get(Objects.requireNonNull(key, "key cannot be null").get());
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> range(Bytes from, Bytes to) {
        return range(from, to, false);
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> reverseRange(Bytes from, Bytes to) {
        return range(from, to, true);
    }

    private KeyValueIterator<Bytes, byte[]> range(Bytes from, Bytes to, boolean isReversed) {
        if (from != null && to != null && from.compareTo(to) > 0) {
            LOGGER.warn(TURNED_RANGE);
        }
        return scan(bytes(from), Keys.after(bytes(to)), isReversed);
    }

    private static byte[] bytes(Bytes key) {
        return key == null ? null : key.get();
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> all() {
        return scan(null, null, false);
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> reverseAll() {
        return scan(null, null, true);
    }

    @Override
    public <S extends Serializer<P>, P> KeyValueIterator<Bytes, byte[]> prefixScan(
            P prefix, S serializer) {
        byte[] first = serializer.serialize(null, Objects.requireNonNull(prefix));
        return scan(first, Keys.afterPrefix(first), false);
    }

    private KeyValueIterator<Bytes, byte[]> scan(byte[] first, byte[] below, boolean isReversed) {
        part.requireOpen();
        return part.scan(first, below, isReversed);
    }

    /** The number of keys, which are counted: it takes as long as {@link #all}. */
    @Override
    public long approximateNumEntries() {
        long count = 0;
        try (KeyValueIterator<Bytes, byte[]> all = all()) {
            for (; all.hasNext(); count++) {
                all.next();
            }
        }
        return count;
    }
}
