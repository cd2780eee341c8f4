package io.gabion.kafka;

import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.processor.StateRestoreListener;

/** {@link WordCount} in a hurry: what it restores is printed, and what is killed is soon missed. */
final class CountingApp {
    private CountingApp() {}

    public static void main(String[] arguments) {
        Properties settings = WordCount.settings(arguments[0], arguments[1]);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 50);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, arguments[2]);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 3000);
        settings.put(
                StreamsConfig.consumerPrefix(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG), 500);
        KafkaStreams streams = new KafkaStreams(WordCount.topology(), settings);
        streams.setGlobalStateRestoreListener(new StateRestoreListener() {
            @Override
            public void onRestoreStart(
                    TopicPartition partition, String store, long from, long to) {
                System.out.println("from " + from + " to " + to + " of " + partition);
            }

            @Override
            public void onBatchRestored(
                    TopicPartition partition, String store, long end, long count) {}

            @Override
            public void onRestoreEnd(TopicPartition partition, String store, long count) {
                System.out.println("restored " + count);
            }
        });
        streams.start();
    }
}
