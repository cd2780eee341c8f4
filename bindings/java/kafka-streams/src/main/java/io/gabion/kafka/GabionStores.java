package io.gabion.kafka;

import java.util.function.Function;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * State stores in Gabion, for the builders of {@link org.apache.kafka.streams.state.Stores}. All
 * stores of a state directory share one store of Gabion, whose options are those of Kafka's
 * configuration that begin with {@code gabion.}, such as {@code gabion.memory_bytes_max}.
 */
public final class GabionStores {
    private GabionStores() {}

    /** A key-value store. */
    public static KeyValueBytesStoreSupplier persistentKeyValueStore(String name) {
        return keyValue(name, KeyValueBytesStore::new);
    }

    /** A key-value store that keeps the timestamp of each value. */
    public static KeyValueBytesStoreSupplier persistentTimestampedKeyValueStore(String name) {
        return keyValue(name, KeyValueBytesStore.Timestamped::new);
    }

    private static KeyValueBytesStoreSupplier keyValue(
            String name, Function<String, KeyValueStore<Bytes, byte[]>> make) {
        java.util.Objects.requireNonNull(name, "name cannot be null");
        return new KeyValueBytesStoreSupplier() {
            @Override
            public String name() {
                return name;
            }

            @Override
            public KeyValueStore<Bytes, byte[]> get() {
                return make.apply(name);
            }

            @Override
            public String metricsScope() {
                return "gabion";
            }
        };
    }
}
