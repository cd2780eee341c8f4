package io.gabion.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.api.io.TempDir;

/**
 * A broker, and an application on exactly-once that is killed again and again. Each count comes out
 * once, in order, and is right in the end; no kill makes Kafka give up a task's state.
 *
 * <p>It takes minutes on a busy machine, so it runs only where GABION_KILLS is set, the number of
 * kills. GABION_SEED repeats a run's input.
 */
@EnabledIfEnvironmentVariable(named = "GABION_KILLS", matches = "[0-9]+")
class ExactlyOnceTest {
    private static final int LINES = 1500;
    private static final int WORDS = 40;

    @TempDir Path directory;

    private final Map<String, Long> expected = new HashMap<>();
    private final Map<String, Long> counted = new HashMap<>();
    private int outputs;

    private static String setting(String name, String otherwise) {
        return Optional.ofNullable(System.getenv(name)).orElse(otherwise);
    }

    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }

    private Process broker(int port) throws IOException, InterruptedException {
        Path config = directory.resolve("server.properties");
        int controller = freePort();
        Files.write(config, List.of(
                "process.roles=broker,controller", "node.id=1",
                "controller.quorum.bootstrap.servers=127.0.0.1:" + controller,
                "controller.listener.names=CONTROLLER",
                "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "listeners=PLAINTEXT://127.0.0.1:" + port + ",CONTROLLER://127.0.0.1:" + controller,
                "log.dirs=" + directory.resolve("broker"), "num.partitions=2",
                "offsets.topic.replication.factor=1", "offsets.topic.num.partitions=1",
                "transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1",
                "transaction.state.log.num.partitions=1", "group.initial.rebalance.delay.ms=0",
                "group.min.session.timeout.ms=500", "num.network.threads=1", "num.io.threads=2"));
        Path log = directory.resolve("broker.log");
        Process format = Children.start(
                log, "kafka.tools.StorageTool", "format", "--standalone", "-t",
                Uuid.randomUuid().toString(), "-c", config.toString());
        assertEquals(0, format.waitFor(), () -> read(log));
        return Children.start(log, "kafka.Kafka", config.toString());
    }

    private static String read(Path file) {
        try {
            return Files.readString(file);
        } catch (IOException failure) {
            return failure.toString();
        }
    }

    @Test
    void countsAreRightWhateverIsKilled() throws Exception {
        int kills = Integer.parseInt(System.getenv("GABION_KILLS"));
        long seed = Long.parseLong(setting("GABION_SEED", Long.toString(System.nanoTime())));
        Random random = new Random(seed);
        int port = freePort();
        String brokers = "127.0.0.1:" + port;
        Map<String, Object> client = Map.of(
                "bootstrap.servers", brokers, "isolation.level", "read_committed",
                "auto.offset.reset", "earliest", "default.api.timeout.ms", 600_000,
                "request.timeout.ms", 30_000, "max.block.ms", 600_000);
        Path log = directory.resolve("app.log");
        Process broker = broker(port);
        Process app = null;
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", brokers,
                        "default.api.timeout.ms", 600_000));
                KafkaProducer<String, String> producer = new KafkaProducer<>(
                        client, new StringSerializer(), new StringSerializer());
                KafkaConsumer<String, Long> consumer = new KafkaConsumer<>(
                        client, new StringDeserializer(), new LongDeserializer())) {
            createTopics(admin);
            consumer.assign(List.of(
                    new TopicPartition("counts", 0), new TopicPartition("counts", 1)));
            for (int round = 0; round <= kills; round++) {
                String cache = random.nextBoolean() ? "0" : "1000000";
                app = Children.start(log, CountingApp.class, brokers,
                        directory.resolve("state").toString(), cache);
                send(producer, random);
                if (round < kills) {
                    int seen = outputs;
                    Map<String, Long> before = Map.copyOf(counted);
                    while (outputs < seen + 3 * WORDS || !areAllCounted(before)) {
                        send(producer, random);
                        poll(consumer, app, log, seed);
                    }
                    app.destroyForcibly().waitFor();
                }
            }
            while (!counted.equals(expected)) {
                poll(consumer, app, log, seed);
            }
        } finally {
            if (app != null) {
                app.destroyForcibly().waitFor();
            }
            broker.destroyForcibly().waitFor();
        }
        String told = Files.readString(log);
        assertFalse(told.contains("TaskCorrupted"), told);
        List<String> restores = told.lines()
                .filter(line -> line.startsWith("from "))
                .collect(Collectors.toList());
        restores.forEach(System.out::println);
        // Where the changelog had something, each restoration began where the store was.
        List<String> whole = restores.stream()
                .filter(line -> line.startsWith("from 0 to ") && !line.startsWith("from 0 to 0 "))
                .collect(Collectors.toList());
        assertEquals(List.of(), whole);
        assertTrue(restores.size() > 2, told);
    }

    /** Whether each word was counted since; so both tasks have committed something. */
    private boolean areAllCounted(Map<String, Long> before) {
        return counted.size() == WORDS && counted.entrySet().stream()
                .allMatch(one -> one.getValue() > before.getOrDefault(one.getKey(), 0L));
    }

    private static void createTopics(Admin admin) throws InterruptedException {
        List<NewTopic> topics = List.of(
                new NewTopic("lines", 2, (short) 1), new NewTopic("counts", 2, (short) 1));
        try {
            admin.createTopics(topics).all().get();
        } catch (ExecutionException failure) {
            throw new AssertionError(failure);
        }
    }

    private void send(KafkaProducer<String, String> producer, Random random) {
        for (int line = 0; line < LINES / 10; line++) {
            StringBuilder words = new StringBuilder();
            for (int i = 0; i < 10; i++) {
                String word = "w" + random.nextInt(WORDS);
                words.append(i == 0 ? "" : " ").append(word);
                expected.merge(word, 1L, Long::sum);
            }
            producer.send(new ProducerRecord<>("lines", "l" + line, words.toString()));
        }
        producer.flush();
    }

    private void poll(KafkaConsumer<String, Long> consumer, Process app, Path log, long seed) {
        String place = "seed " + seed;
        assertTrue(app.isAlive(), () -> place + read(log));
        for (ConsumerRecord<String, Long> record : consumer.poll(Duration.ofMillis(100))) {
            outputs++;
            long before = counted.getOrDefault(record.key(), 0L);
            assertTrue(record.value() > before && record.value() <= expected.get(record.key()),
                    place + ": " + record.key() + " came as " + record.value() + " after " + before
                            + ", and was sent " + expected.get(record.key()));
            counted.put(record.key(), record.value());
        }
    }
}
