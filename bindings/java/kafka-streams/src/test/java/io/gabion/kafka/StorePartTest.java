package io.gabion.kafka;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.mockito.ArgumentMatchers.any;
import static org.mockito.Mockito.doAnswer;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;

import io.gabion.Gabion;
import io.gabion.Store;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.TaskCorruptedException;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.internals.ProcessorContextImpl;
import org.apache.kafka.streams.processor.internals.ProcessorMetadata;
import org.apache.kafka.streams.processor.internals.RecordBatchingStateRestoreCallback;
import org.apache.kafka.streams.processor.internals.RecordCollector;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What is on the medium at a kill: a checkpoint of the shared store stands for it. */
class StorePartTest {
    private static final TaskId TASK = new TaskId(0, 3);
    private static final TopicPartition CHANGELOG = new TopicPartition("app-counts-changelog", 3);

    @TempDir Path directory;

    private final Map<String, Object> configs = new HashMap<>();
    private final ProcessorMetadata metadata = new ProcessorMetadata();
    private final Map<TopicPartition, Long> sent = new HashMap<>();
    private final List<KeyValueStore<Bytes, byte[]>> opened = new ArrayList<>();
    private RecordBatchingStateRestoreCallback restored;

    @AfterEach
    void closeAll() {
        opened.forEach(StateStore::close);
    }

    private KeyValueStore<Bytes, byte[]> open(Path base, String name) {
        ProcessorContextImpl context = mock(ProcessorContextImpl.class);
        RecordCollector collector = mock(RecordCollector.class);
        when(collector.offsets()).thenAnswer(call -> Map.copyOf(sent));
        File stateDir = base.resolve(TASK.toString()).toFile();
        stateDir.mkdirs();
        when(context.taskId()).thenReturn(TASK);
        when(context.stateDir()).thenReturn(stateDir);
        when(context.appConfigs()).thenReturn(configs);
        when(context.changelogFor(any())).thenReturn(CHANGELOG.topic());
        when(context.recordCollector()).thenReturn(collector);
        when(context.processorMetadata()).thenReturn(metadata);
        when(context.recordMetadata()).thenReturn(Optional.empty());
        doAnswer(call -> restored = call.getArgument(1)).when(context)
                .register(any(), any(), any());
        KeyValueStore<Bytes, byte[]> store = GabionStores.persistentKeyValueStore(name).get();
        store.init(context, store);
        opened.add(store);
        return store;
    }

    private KeyValueStore<Bytes, byte[]> open() {
        return open(directory.resolve("app"), "counts");
    }

    private void exactlyOnce() {
        configs.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    }

    private static Bytes bytes(String text) {
        return Bytes.wrap(text.getBytes(UTF_8));
    }

    /** Processes a record: a write, and the changelog's next record. */
    private void put(KeyValueStore<Bytes, byte[]> store, String key, String value) {
        store.put(bytes(key), value == null ? null : value.getBytes(UTF_8));
        sent.merge(CHANGELOG, 0L, (old, none) -> old + 1);
    }

    /** What Kafka does after a transaction, while the task runs on. */
    private void committed() {
        metadata.setNeedsCommit(false);
    }

    private static Map<String, String> pairs(KeyValueStore<Bytes, byte[]> store) {
        Map<String, String> pairs = new TreeMap<>();
        try (KeyValueIterator<Bytes, byte[]> all = store.all()) {
            while (all.hasNext()) {
                KeyValue<Bytes, byte[]> pair = all.next();
                pairs.put(new String(pair.key.get(), UTF_8), new String(pair.value, UTF_8));
            }
        }
        return pairs;
    }

    /** The state directory as a kill would leave it now, as far as the store is open. */
    private Path killed() throws IOException {
        Path app = directory.resolve("app");
        Path copy = Files.createTempDirectory(directory, "killed");
        SharedStore shared = SharedStore.acquire(app.resolve("0_3").toFile(), TASK, configs);
        shared.store().checkpoint(copy.resolve("gabion"));
        shared.release("");
        Files.createDirectory(copy.resolve("0_3"));
        try (Stream<Path> markers = Files.list(app.resolve("0_3"))) {
            for (Path marker : markers.collect(Collectors.toList())) {
                Files.copy(marker, copy.resolve("0_3").resolve(marker.getFileName()));
            }
        }
        return copy;
    }

    private void assertKilled(Map<String, String> pairs, Long offset) throws IOException {
        KeyValueStore<Bytes, byte[]> store = open(killed(), "counts");
        assertEquals(pairs, pairs(store));
        assertEquals(offset, store.committedOffset(CHANGELOG));
        store.close();
    }

    @Test
    void dataAndOffsetGoTogether() throws IOException {
        KeyValueStore<Bytes, byte[]> store = open();
        put(store, "a", "1");
        put(store, "b", "1");
        assertKilled(Map.of(), null);
        store.commit(Map.of(CHANGELOG, 1L));
        put(store, "a", "2");
        put(store, "b", null);
        assertEquals(Map.of("a", "2"), pairs(store));
        assertKilled(Map.of("a", "1", "b", "1"), 1L);
        store.commit(Map.of(CHANGELOG, 3L));
        assertKilled(Map.of("a", "2"), 3L);
        store.commit(Map.of());
        assertKilled(Map.of("a", "2"), null);
    }

    @Test
    void underExactlyOnceOnlyWhatIsCommittedIsThere() throws IOException {
        exactlyOnce();
        KeyValueStore<Bytes, byte[]> store = open();
        put(store, "a", "1");
        put(store, "b", "1");
        // Kafka asks for this at the end of a task that closes well or not.
        store.commit(Map.of(CHANGELOG, 1L));
        assertKilled(Map.of(), null);
        committed();
        assertKilled(Map.of(), null);
        put(store, "a", "2");
        assertKilled(Map.of("a", "1", "b", "1"), 1L);
        put(store, "c", "1");
        assertKilled(Map.of("a", "1", "b", "1"), 1L);
        committed();
        put(store, "b", null);
        assertKilled(Map.of("a", "2", "b", "1", "c", "1"), 3L);
        assertEquals(Map.of("a", "2", "c", "1"), pairs(store));
        // It closes before the commit.
        store.close();
        store = open();
        assertEquals(Map.of("a", "2", "b", "1", "c", "1"), pairs(store));
        put(store, "b", "2");
        committed();
        store.close();
        store = open();
        assertEquals("2", pairs(store).get("b"));
        assertEquals(5L, store.committedOffset(CHANGELOG));
    }

    /** Two stores of a task see the same commit, whichever writes first afterwards. */
    @Test
    void storesOfATaskSeeTheSameCommits() throws IOException {
        exactlyOnce();
        KeyValueStore<Bytes, byte[]> counts = open();
        put(counts, "a", "1");
        committed();
        put(counts, "a", "2");
        put(counts, "a", "3");
        assertKilled(Map.of("a", "1"), 0L);
        committed();
        counts.commit(Map.of());
        // Kafka gives the state up: nothing that waits is written any more.
        counts.close();
        assertNull(open().committedOffset(CHANGELOG));
    }

    @Test
    void whatIsRestoredIsCommitted() throws IOException {
        exactlyOnce();
        KeyValueStore<Bytes, byte[]> store = open();
        restored.restoreBatch(List.of(
                record(0, "a", "1"), record(1, "b", "1"), record(2, "a", null)));
        assertEquals(Map.of("b", "1"), pairs(store));
        store.commit(Map.of(CHANGELOG, 2L));
        assertKilled(Map.of("b", "1"), 2L);
        put(store, "b", "2");
        assertKilled(Map.of("b", "1"), 2L);
    }

    private static ConsumerRecord<byte[], byte[]> record(long offset, String key, String value) {
        return new ConsumerRecord<>(
                CHANGELOG.topic(), CHANGELOG.partition(), offset, key.getBytes(UTF_8),
                value == null ? null : value.getBytes(UTF_8));
    }

    @Test
    void aTransactionThatIsTooLargeIsMarked() throws IOException {
        exactlyOnce();
        configs.put(SharedStore.UNCOMMITTED_BYTES_MAX, 100);
        KeyValueStore<Bytes, byte[]> store = open();
        String large = "x".repeat(60);
        put(store, "a", large);
        assertKilled(Map.of(), null);
        put(store, "b", large);
        Path killed = killed();
        assertThrows(TaskCorruptedException.class, () -> open(killed, "counts"));
        committed();
        put(store, "c", "1");
        assertKilled(Map.of("a", large, "b", large), 1L);
    }

    @Test
    void underAtLeastOnceWhatIsTooMuchIsWritten() throws IOException {
        configs.put(SharedStore.UNCOMMITTED_BYTES_MAX, 100);
        KeyValueStore<Bytes, byte[]> store = open();
        String large = "x".repeat(60);
        put(store, "a", large);
        store.commit(Map.of(CHANGELOG, 0L));
        put(store, "b", large);
        put(store, "c", large);
        assertKilled(Map.of("a", large, "b", large, "c", large), 0L);
    }

    @Test
    void aTaskWithoutItsDirectoryBeginsAnew() throws IOException {
        KeyValueStore<Bytes, byte[]> counts = open();
        KeyValueStore<Bytes, byte[]> others = open(directory.resolve("app"), "others");
        put(counts, "a", "1");
        put(others, "b", "1");
        counts.commit(Map.of(CHANGELOG, 0L));
        others.commit(Map.of(CHANGELOG, 0L));
        counts.close();
        Files.delete(directory.resolve("app").resolve("0_3").resolve("counts.gabion"));
        counts = open();
        assertEquals(Map.of(), pairs(counts));
        assertNull(counts.committedOffset(CHANGELOG));
        assertEquals(Map.of("b", "1"), pairs(others));
        counts.close();
        others.close();
        // What is left of the first one is gone from the store.
        try (Store store = Gabion.open(directory.resolve("app").resolve("gabion"))) {
            assertEquals(3, store.keyspaceNames().size(), store.keyspaceNames().toString());
        }
    }

    @Test
    void iteratorsShowTheirMomentAndEndWithTheStore() {
        KeyValueStore<Bytes, byte[]> store = open();
        for (char key = 'a'; key < 'k'; key++) {
            put(store, "" + key, "stored");
        }
        store.commit(Map.of(CHANGELOG, 9L));
        put(store, "b", "newer");
        put(store, "c", null);
        put(store, "bb", "between");
        KeyValueIterator<Bytes, byte[]> range = store.range(bytes("b"), bytes("d"));
        KeyValueIterator<Bytes, byte[]> reversed = store.reverseRange(bytes("b"), bytes("d"));
        put(store, "d", "later");
        store.commit(Map.of(CHANGELOG, 13L));
        List<String> seen = new ArrayList<>();
        while (range.hasNext()) {
            assertEquals(range.peekNextKey(), range.peekNextKey());
            KeyValue<Bytes, byte[]> pair = range.next();
            seen.add(new String(pair.key.get(), UTF_8) + "=" + new String(pair.value, UTF_8));
        }
        assertEquals(List.of("b=newer", "bb=between", "d=stored"), seen);
        List<String> back = new ArrayList<>();
        while (reversed.hasNext()) {
            back.add(0, new String(reversed.next().key.get(), UTF_8));
        }
        assertEquals(List.of("b", "bb", "d"), back);
        assertEquals(10, store.approximateNumEntries());
        KeyValueIterator<Bytes, byte[]> open = store.all();
        assertTrue(open.hasNext());
        store.close();
        assertFalse(store.isOpen());
        assertThrows(InvalidStateStoreException.class, open::hasNext);
        assertThrows(InvalidStateStoreException.class, () -> store.get(bytes("b")));
        assertThrows(InvalidStateStoreException.class, store::all);
        range.close();
        reversed.close();
    }
}
