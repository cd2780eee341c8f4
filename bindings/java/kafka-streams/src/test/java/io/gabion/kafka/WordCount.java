package io.gabion.kafka;

import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts the words of the topic {@code lines}, exactly once, with all state in Gabion.
 *
 * <pre>
 * java -cp ... io.gabion.kafka.WordCount localhost:9092 /var/lib/word-count
 * </pre>
 */
public final class WordCount {
    private WordCount() {}

    /** The topology: it names no kind of store. */
    static Topology topology() {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream("lines", Consumed.with(Serdes.String(), Serdes.String()))
                .flatMapValues(line -> Arrays.asList(line.toLowerCase(Locale.ROOT).split("\\W+")))
                .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.as("counts"))
                .toStream()
                .to("counts", Produced.with(Serdes.String(), Serdes.Long()));
        return builder.build();
    }

    /** The settings; two of them put the state into Gabion. */
    static Properties settings(String brokers, String stateDir) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "word-count");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, brokers);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, stateDir);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(
                StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, GabionDslStoreSuppliers.class);
        settings.put("gabion.memory_bytes_max", "256MiB");
        return settings;
    }

    /** Runs until it is stopped: first the brokers, then the directory of the state. */
    public static void main(String[] arguments) {
        KafkaStreams streams =
                new KafkaStreams(topology(), settings(arguments[0], arguments[1]));
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
