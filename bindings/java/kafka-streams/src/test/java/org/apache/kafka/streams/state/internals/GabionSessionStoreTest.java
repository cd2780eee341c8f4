package org.apache.kafka.streams.state.internals;

import static java.time.Duration.ofMillis;

import io.gabion.kafka.GabionStores;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;

/** Kafka's own tests of session stores, as those that also find sessions by time alone. */
public class GabionSessionStoreTest extends AbstractSessionBytesStoreTest {
    @Override
    <K, V> SessionStore<K, V> buildSessionStore(
            long retention, Serde<K> keys, Serde<V> values) {
        return Stores.sessionStoreBuilder(
                        GabionStores.persistentSessionStore(
                                "gabion-session-store", ofMillis(retention)),
                        keys, values)
                .build();
    }

    @Override
    StoreType storeType() {
        return StoreType.RocksDBTimeOrderedSessionStoreWithIndex;
    }
}
