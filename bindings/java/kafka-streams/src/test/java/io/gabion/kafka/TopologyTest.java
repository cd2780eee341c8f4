package io.gabion.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.stream.Collectors;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Whole topologies, whose stores come by the one setting. */
class TopologyTest {
    @TempDir Path directory;

    private Properties settings(String guarantee) {
        Properties settings = WordCount.settings("none:1", directory.toString());
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, guarantee);
        return settings;
    }

    private static TestInputTopic<String, String> input(TopologyTestDriver driver, String topic) {
        return driver.createInputTopic(topic, new StringSerializer(), new StringSerializer());
    }

    @ParameterizedTest
    @ValueSource(strings = {StreamsConfig.AT_LEAST_ONCE, StreamsConfig.EXACTLY_ONCE_V2})
    void wordsAreCounted(String guarantee) {
        try (TopologyTestDriver driver =
                new TopologyTestDriver(WordCount.topology(), settings(guarantee))) {
            input(driver, "lines").pipeInput("Stone by stone by stone");
            input(driver, "lines").pipeInput("a basket by the river");
            assertEquals(3L, driver.getKeyValueStore("counts").get("by"));
            assertNull(driver.getKeyValueStore("counts").get("wire"));
            try (KeyValueIterator<String, Object> range =
                    driver.<String, Object>getKeyValueStore("counts").range("b", "c")) {
                List<String> words = new ArrayList<>();
                range.forEachRemaining(pair -> words.add(pair.key));
                assertEquals(List.of("basket", "by"), words);
            }
            // One store for all, in the folder of the application.
            assertTrue(Files.isDirectory(directory.resolve("word-count").resolve("gabion")));
        }
    }

    /** As with the stores that Kafka has. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void windowsSessionsAndJoins(boolean emitsOnClose) {
        Properties settings = settings(StreamsConfig.EXACTLY_ONCE_V2);
        List<String> results = results(emitsOnClose, settings);
        settings.put(
                StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG,
                BuiltInDslStoreSuppliers.RocksDBDslStoreSuppliers.class);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, directory.resolve("rocksdb").toString());
        List<String> expected = results(emitsOnClose, settings);
        if (emitsOnClose) {
            // What closes at the same time has no order.
            expected.sort(null);
            results.sort(null);
        }
        assertEquals(expected, results);
        assertTrue(results.size() > 10, results.toString());
    }

    private static List<String> results(boolean emitsOnClose, Properties settings) {
        StreamsBuilder builder = new StreamsBuilder();
        var strings = Consumed.with(Serdes.String(), Serdes.String());
        KStream<String, String> stream = builder.stream("input", strings);
        KGroupedStream<String, String> grouped = stream.groupByKey();
        EmitStrategy emit = emitsOnClose
                ? EmitStrategy.onWindowClose() : EmitStrategy.onWindowUpdate();
        var produced = Produced.with(Serdes.String(), Serdes.String());
        grouped.windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofSeconds(10)))
                .emitStrategy(emit)
                .count(Materialized.as("windows"))
                .toStream((window, count) -> "window " + window)
                .mapValues(String::valueOf)
                .to("output", produced);
        grouped.windowedBy(SessionWindows.ofInactivityGapWithNoGrace(Duration.ofSeconds(5)))
                .emitStrategy(emit)
                .count(Materialized.as("sessions"))
                .toStream((session, count) -> "session " + session)
                .mapValues(String::valueOf)
                .to("output", produced);
        grouped.windowedBy(SlidingWindows.ofTimeDifferenceWithNoGrace(Duration.ofSeconds(3)))
                .count(Materialized.as("sliding"))
                .toStream((window, count) -> "sliding " + window)
                .mapValues(String::valueOf)
                .to("output", produced);
        stream.outerJoin(
                        builder.stream("other", strings), (left, right) -> left + right,
                        JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofSeconds(2)))
                .to("output", produced);
        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(), settings)) {
            var input = input(driver, "input");
            var other = input(driver, "other");
            Random random = new Random(7);
            for (int turn = 0; turn < 120; turn++) {
                String key = "k" + random.nextInt(5);
                Instant time = Instant.ofEpochMilli(turn * 400L + random.nextInt(4_000));
                (random.nextInt(3) == 0 ? other : input).pipeInput(key, "v" + turn, time);
                driver.advanceWallClockTime(Duration.ofMillis(random.nextInt(900)));
            }
            return driver.createOutputTopic("output", new StringDeserializer(),
                            new StringDeserializer())
                    .readKeyValuesToList().stream()
                    .map(pair -> pair.key + "=" + pair.value)
                    .collect(Collectors.toCollection(ArrayList::new));
        }
    }

    @Test
    void whatIsNotThereSaysSo() {
        assertThrows(IllegalArgumentException.class, () -> GabionStores.persistentWindowStore(
                "s", Duration.ofSeconds(1), Duration.ofSeconds(2), false));
        assertThrows(IllegalArgumentException.class, () -> GabionStores.persistentSessionStore(
                "s", Duration.ofSeconds(-1)));
        assertThrows(NullPointerException.class, () -> GabionStores.persistentKeyValueStore(null));
    }
}
