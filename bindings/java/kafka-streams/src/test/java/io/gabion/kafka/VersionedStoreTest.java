package io.gabion.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.processor.internals.ProcessorRecordContext;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.VersionedBytesStoreSupplier;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.test.InternalMockProcessorContext;
import org.apache.kafka.test.MockRecordCollector;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class VersionedStoreTest {
    private static final Duration HISTORY = Duration.ofMillis(1000);

    @TempDir Path directory;

    private InternalMockProcessorContext<?, ?> context(String name) {
        var context = new InternalMockProcessorContext<>(
                directory.resolve(name).toFile(), Serdes.String(), Serdes.String(),
                new MockRecordCollector(), null);
        context.setRecordContext(new ProcessorRecordContext(0, 0, 0, "", new RecordHeaders()));
        return context;
    }

    private VersionedKeyValueStore<String, String> open(
            VersionedBytesStoreSupplier supplier, InternalMockProcessorContext<?, ?> context) {
        VersionedKeyValueStore<String, String> store = Stores.versionedKeyValueStoreBuilder(
                        supplier, Serdes.String(), Serdes.String())
                .withLoggingDisabled()
                .build();
        store.init(context, store);
        return store;
    }

    /** Beside the store that Kafka has, whose answers are the same. */
    @Test
    void versionsAreThoseOfKafka() {
        long seed = Long.getLong("gabion.seed", System.nanoTime());
        Random random = new Random(seed);
        var ours = open(
                GabionStores.persistentVersionedKeyValueStore("v", HISTORY), context("ours"));
        var theirs = open(
                Stores.persistentVersionedKeyValueStore("v", HISTORY, Duration.ofMillis(300)),
                context("theirs"));
        long now = 0;
        for (int turn = 0; turn < 4000; turn++) {
            String place = "seed " + seed + ", turn " + turn;
            now += random.nextInt(20);
            String key = "k" + random.nextInt(6);
            long time = Math.max(0, now - random.nextInt(random.nextInt(4) == 0 ? 1300 : 200));
            switch (random.nextInt(5)) {
                case 0:
                    assertEquals(theirs.delete(key, time), ours.delete(key, time), place);
                    break;
                case 1:
                    assertEquals(theirs.get(key), ours.get(key), place);
                    break;
                case 2:
                    assertEquals(theirs.get(key, time), ours.get(key, time), place);
                    break;
                default:
                    String value = random.nextInt(5) == 0 ? null : "v" + turn;
                    assertEquals(
                            theirs.put(key, value, time), ours.put(key, value, time), place);
            }
        }
        theirs.close();
        ours.close();
    }

    /** What has left the history leaves the medium, too. */
    @Test
    void whatHasEndedIsRemoved() {
        var context = context("ours");
        VersionedStore store = new VersionedStore("v", HISTORY.toMillis());
        store.init(context, store);
        byte[] value = "v".getBytes(StandardCharsets.UTF_8);
        for (int turn = 0; turn < 100; turn++) {
            Bytes key = Bytes.wrap(new byte[] {(byte) (turn % 10)});
            store.put(key, turn % 20 < 10 ? value : null, turn);
        }
        store.put(Bytes.wrap(new byte[] {99}), value, 100_000);
        List<Bytes> left = new ArrayList<>();
        try (KeyValueIterator<Bytes, byte[]> all = store.part.scan(null, null, false)) {
            all.forEachRemaining((KeyValue<Bytes, byte[]> pair) -> left.add(pair.key));
        }
        // The last put; all keys before it were deleted in the end.
        assertEquals(1, left.size(), left.toString());
        store.close();
    }
}
