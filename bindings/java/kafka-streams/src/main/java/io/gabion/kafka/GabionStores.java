package io.gabion.kafka;

import java.time.Duration;
import java.util.Objects;
import java.util.function.Function;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.VersionedBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.internals.VersionedKeyValueToBytesStoreAdapter;

/**
 * State stores in Gabion, for the builders of {@link org.apache.kafka.streams.state.Stores}. All
 * stores of a state directory share one store of Gabion, whose options are those of Kafka's
 * configuration that begin with {@code gabion.}, such as {@code gabion.memory_bytes_max}.
 */
public final class GabionStores {
    private static final String SCOPE = "gabion";

    private GabionStores() {}

    /** A key-value store. */
    public static KeyValueBytesStoreSupplier persistentKeyValueStore(String name) {
        return keyValue(name, KeyValueBytesStore::new);
    }

    /** A key-value store that keeps the timestamp of each value. */
    public static KeyValueBytesStoreSupplier persistentTimestampedKeyValueStore(String name) {
        return keyValue(name, KeyValueBytesStore.Timestamped::new);
    }

    /**
     * A window store.
     *
     * @param retention how long windows are kept, of stream time, after their start
     * @param windowSize how long windows are
     * @param retainsDuplicates whether a key of a window may have several values
     */
    public static WindowBytesStoreSupplier persistentWindowStore(
            String name, Duration retention, Duration windowSize, boolean retainsDuplicates) {
        return window(name, retention, windowSize, retainsDuplicates, WindowBytesStore::new);
    }

    /** As {@link #persistentWindowStore}, with the timestamp of each value. */
    public static WindowBytesStoreSupplier persistentTimestampedWindowStore(
            String name, Duration retention, Duration windowSize, boolean retainsDuplicates) {
        return window(
                name, retention, windowSize, retainsDuplicates, WindowBytesStore.Timestamped::new);
    }

    /**
     * A session store.
     *
     * @param retention how long sessions are kept, of stream time, after their end
     */
    public static SessionBytesStoreSupplier persistentSessionStore(
            String name, Duration retention) {
        Objects.requireNonNull(name, "name cannot be null");
        long millis = millis(retention, "retention");
        return new SessionBytesStoreSupplier() {
            @Override
            public String name() {
                return name;
            }

            @Override
            public SessionStore<Bytes, byte[]> get() {
                return new SessionBytesStore(name, millis);
            }

            @Override
            public String metricsScope() {
                return SCOPE;
            }

            @Override
            public long segmentIntervalMs() {
                return SegmentedStore.segmentMillis(millis);
            }

            @Override
            public long retentionPeriod() {
                return millis;
            }
        };
    }

    private static long millis(Duration duration, String what) {
        long millis = duration.toMillis();
        if (millis < 0) {
            throw new IllegalArgumentException(what + " cannot be negative");
        }
        return millis;
    }

    private interface MakeWindowStore {
        WindowStore<Bytes, byte[]> make(
                String name, long retention, long windowSize, boolean retainsDuplicates);
    }

    private static WindowBytesStoreSupplier window(
            String name, Duration retention, Duration windowSize, boolean retainsDuplicates,
            MakeWindowStore make) {
        Objects.requireNonNull(name, "name cannot be null");
        long retentionMillis = millis(retention, "retention");
        long windowMillis = millis(windowSize, "window size");
        if (windowMillis > retentionMillis) {
            throw new IllegalArgumentException("the retention of the window store " + name
                    + " must be no shorter than its windows: " + retentionMillis + " ms are, and "
                    + windowMillis + " ms");
        }
        return new WindowBytesStoreSupplier() {
            @Override
            public String name() {
                return name;
            }

            @Override
            public WindowStore<Bytes, byte[]> get() {
                return make.make(name, retentionMillis, windowMillis, retainsDuplicates);
            }

            @Override
            public String metricsScope() {
                return SCOPE;
            }

            @Override
            public long segmentIntervalMs() {
                return SegmentedStore.segmentMillis(retentionMillis);
            }

            @Override
            public long windowSize() {
                return windowMillis;
            }

            @Override
            public boolean retainDuplicates() {
                return retainsDuplicates;
            }

            @Override
            public long retentionPeriod() {
                return retentionMillis;
            }
        };
    }

    /**
     * A store that keeps the versions of each key.
     *
     * @param history how long versions are kept, of stream time, after the next one took their
     *     place; and how late a version may come
     */
    public static VersionedBytesStoreSupplier persistentVersionedKeyValueStore(
            String name, Duration history) {
        Objects.requireNonNull(name, "name cannot be null");
        long millis = millis(history, "history");
        return new VersionedBytesStoreSupplier() {
            @Override
            public String name() {
                return name;
            }

            @Override
            public KeyValueStore<Bytes, byte[]> get() {
                return new VersionedKeyValueToBytesStoreAdapter(new VersionedStore(name, millis));
            }

            @Override
            public String metricsScope() {
                return SCOPE;
            }

            @Override
            public long historyRetentionMs() {
                return millis;
            }
        };
    }

    private static KeyValueBytesStoreSupplier keyValue(
            String name, Function<String, KeyValueStore<Bytes, byte[]>> make) {
        Objects.requireNonNull(name, "name cannot be null");
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
                return SCOPE;
            }
        };
    }
}
