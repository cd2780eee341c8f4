package io.gabion.kafka;

import java.nio.ByteBuffer;
import java.util.Arrays;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.TimestampedBytesStore;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;
import org.apache.kafka.streams.state.internals.WindowKeySchema;

/** A window store. Its keys end with the start of the window and a number among duplicates. */
class WindowBytesStore extends SegmentedStore implements WindowStore<Bytes, byte[]> {
    private static final int TIME_AT = Long.BYTES + Integer.BYTES;

    private final long windowSize;
    private final boolean retainsDuplicates;
    private int number;

    WindowBytesStore(String name, long retention, long windowSize, boolean retainsDuplicates) {
        super(name, retention, new WindowKeySchema());
        this.windowSize = windowSize;
        this.retainsDuplicates = retainsDuplicates;
    }

    /** One whose values begin with a timestamp, which is Kafka's affair. */
    static final class Timestamped extends WindowBytesStore implements TimestampedBytesStore {
        Timestamped(String name, long retention, long windowSize, boolean retainsDuplicates) {
            super(name, retention, windowSize, retainsDuplicates);
        }
    }

    private static long startOf(byte[] stored) {
        return ByteBuffer.wrap(stored).getLong(stored.length - TIME_AT);
    }

    @Override
    boolean isWithin(byte[] stored, Bytes from, Bytes to, long timeFrom, long timeTo) {
        long start = startOf(stored);
        int end = stored.length - TIME_AT;
        return start >= timeFrom && start <= timeTo
                && (from == null || compare(stored, end, from) >= 0)
                && (to == null || compare(stored, end, to) <= 0);
    }

    private static int compare(byte[] stored, int end, Bytes key) {
        return Arrays.compareUnsigned(stored, 0, end, key.get(), 0, key.get().length);
    }

    @Override
    public void put(Bytes key, byte[] value, long windowStart) {
        if (value == null && retainsDuplicates) {
            // Nobody can say which of the duplicates is meant.
            return;
        }
        if (retainsDuplicates) {
            number = (number + 1) & Integer.MAX_VALUE;
        }
        write(WindowKeySchema.toStoreKeyBinary(key, windowStart, number), value);
    }

    @Override
    public byte[] fetch(Bytes key, long time) {
        return read(WindowKeySchema.toStoreKeyBinary(key, time, number));
    }

    @Override
    public WindowStoreIterator<byte[]> fetch(Bytes key, long timeFrom, long timeTo) {
        return new Values(fetch(key, timeFrom, timeTo, false));
    }

    @Override
    public WindowStoreIterator<byte[]> backwardFetch(Bytes key, long timeFrom, long timeTo) {
        return new Values(fetch(key, timeFrom, timeTo, true));
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(
            Bytes keyFrom, Bytes keyTo, long timeFrom, long timeTo) {
        return windowed(fetch(keyFrom, keyTo, timeFrom, timeTo, false));
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(
            Bytes keyFrom, Bytes keyTo, long timeFrom, long timeTo) {
        return windowed(fetch(keyFrom, keyTo, timeFrom, timeTo, true));
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> all() {
        return windowed(fetch(null, null, 0, Long.MAX_VALUE, false));
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardAll() {
        return windowed(fetch(null, null, 0, Long.MAX_VALUE, true));
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetchAll(long timeFrom, long timeTo) {
        return windowed(fetch(null, null, timeFrom, timeTo, false));
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetchAll(long timeFrom, long timeTo) {
        return windowed(fetch(null, null, timeFrom, timeTo, true));
    }

    private KeyValueIterator<Windowed<Bytes>, byte[]> windowed(
            KeyValueIterator<Bytes, byte[]> pairs) {
        return new MappedIterator<>(
                pairs, stored -> WindowKeySchema.fromStoreBytesKey(stored.get(), windowSize));
    }

    private static final class Values extends MappedIterator<Long>
            implements WindowStoreIterator<byte[]> {
        Values(KeyValueIterator<Bytes, byte[]> pairs) {
            super(pairs, stored -> startOf(stored.get()));
        }
    }
}
