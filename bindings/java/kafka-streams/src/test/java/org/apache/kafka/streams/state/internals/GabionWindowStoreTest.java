package org.apache.kafka.streams.state.internals;

import static java.time.Duration.ofMillis;

import io.gabion.kafka.GabionStores;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/** Kafka's own tests of window stores. */
public class GabionWindowStoreTest extends AbstractWindowBytesStoreTest {
    @Override
    <K, V> WindowStore<K, V> buildWindowStore(
            long retention, long windowSize, boolean retainDuplicates, Serde<K> keys,
            Serde<V> values) {
        return Stores.windowStoreBuilder(
                        GabionStores.persistentWindowStore(
                                "gabion-window-store", ofMillis(retention), ofMillis(windowSize),
                                retainDuplicates),
                        keys, values)
                .build();
    }
}
