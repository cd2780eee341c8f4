package io.gabion.kafka;

import java.util.function.Function;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.state.KeyValueIterator;

/** The pairs of an iterator with keys that are made of the stored ones. */
class MappedIterator<K> implements KeyValueIterator<K, byte[]> {
    private final KeyValueIterator<Bytes, byte[]> pairs;
    private final Function<Bytes, K> map;

    MappedIterator(KeyValueIterator<Bytes, byte[]> pairs, Function<Bytes, K> map) {
        this.pairs = pairs;
        this.map = map;
    }

    @Override
    public boolean hasNext() {
        return pairs.hasNext();
    }

    @Override
    public KeyValue<K, byte[]> next() {
        KeyValue<Bytes, byte[]> pair = pairs.next();
        return KeyValue.pair(map.apply(pair.key), pair.value);
    }

    @Override
    public K peekNextKey() {
        return map.apply(pairs.peekNextKey());
    }

    @Override
    public void close() {
        pairs.close();
    }
}
