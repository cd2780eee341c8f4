package io.gabion.kafka;

import org.apache.kafka.streams.state.DslKeyValueParams;
import org.apache.kafka.streams.state.DslSessionParams;
import org.apache.kafka.streams.state.DslStoreSuppliers;
import org.apache.kafka.streams.state.DslWindowParams;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;

/**
 * Puts all stores of a topology that say nothing else into Gabion: the class is the value of
 * Kafka's setting {@code dsl.store.suppliers.class}. Stores whose values keep headers are not
 * there.
 */
public final class GabionDslStoreSuppliers implements DslStoreSuppliers {
    /** Kafka makes one. */
    public GabionDslStoreSuppliers() {}

    @Override
    public KeyValueBytesStoreSupplier keyValueStore(DslKeyValueParams params) {
        return isTimestamped(params.dslStoreFormat())
                ? GabionStores.persistentTimestampedKeyValueStore(params.name())
                : GabionStores.persistentKeyValueStore(params.name());
    }

    @Override
    public WindowBytesStoreSupplier windowStore(DslWindowParams params) {
        return isTimestamped(params.dslStoreFormat())
                ? GabionStores.persistentTimestampedWindowStore(
                        params.name(), params.retentionPeriod(), params.windowSize(),
                        params.retainDuplicates())
                : GabionStores.persistentWindowStore(
                        params.name(), params.retentionPeriod(), params.windowSize(),
                        params.retainDuplicates());
    }

    @Override
    public SessionBytesStoreSupplier sessionStore(DslSessionParams params) {
        isTimestamped(params.storeFormat());
        return GabionStores.persistentSessionStore(params.name(), params.retentionPeriod());
    }

    /** Formats are compared by name: their type is internal to Kafka. */
    private static boolean isTimestamped(Enum<?> format) {
        String name = format == null ? "TIMESTAMPED" : format.name();
        if (name.equals("HEADERS")) {
            throw new UnsupportedOperationException(
                    "Gabion has no stores that keep headers; set dsl.store.format to another");
        }
        return name.equals("TIMESTAMPED");
    }
}
