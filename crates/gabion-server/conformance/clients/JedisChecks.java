import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.Response;
import redis.clients.jedis.StreamEntryID;
import redis.clients.jedis.args.ListDirection;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.exceptions.JedisNoScriptException;
import redis.clients.jedis.params.GetExParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.params.XAutoClaimParams;
import redis.clients.jedis.params.XReadGroupParams;

/**
 * What programs do with Jedis, and a kill of the server in the middle.
 *
 * <p>{@code JedisChecks PORT COUNT KILL...}: KILL is the command that kills the server and starts it
 * again. Prints a line for each check.
 */
public final class JedisChecks {
    private static final int PATIENCE_SECONDS = 60;

    private final int count;
    private final String[] kill;
    private final RedisClient client;

    private interface Check {
        void run() throws Exception;
    }

    private JedisChecks(int port, int count, String[] kill) {
        this.count = count;
        this.kill = kill;
        var pool = new ConnectionPoolConfig();
        pool.setMaxTotal(12);
        client = RedisClient.builder().hostAndPort("127.0.0.1", port).poolConfig(pool).build();
    }

    private static void same(Object found, Object expected) {
        if (!Objects.equals(found, expected)) {
            throw new AssertionError(found + " in place of " + expected);
        }
    }

    /** Runs jobs side by side. The first failure is the caller's. */
    private static void together(Check... jobs) throws Exception {
        var threads = Executors.newFixedThreadPool(jobs.length);
        List<Future<Void>> running = new ArrayList<>();
        for (Check job : jobs) {
            Callable<Void> task = () -> {
                job.run();
                return null;
            };
            running.add(threads.submit(task));
        }
        threads.shutdown();
        for (Future<Void> job : running) {
            try {
                job.get();
            } catch (ExecutionException e) {
                throw new Exception(e.getCause());
            }
        }
    }

    private static void until(Callable<Boolean> condition) throws Exception {
        long end = System.nanoTime() + PATIENCE_SECONDS * 1_000_000_000L;
        while (!condition.call()) {
            if (System.nanoTime() > end) {
                throw new AssertionError("it takes too long");
            }
            Thread.sleep(5);
        }
    }

    private static List<String> numbers(int length, int first) {
        return IntStream.range(first, first + length).mapToObj(Integer::toString).toList();
    }

    private static List<String> sorted(List<String> numbers) {
        return numbers.stream().map(Integer::valueOf).sorted().map(String::valueOf).toList();
    }

    private void checkPool() throws Exception {
        var jobs = new Check[20];
        for (int worker = 0; worker < jobs.length; worker++) {
            int of = worker;
            jobs[worker] = () -> {
                for (int number = 0; number < count; number++) {
                    client.set(of + ":" + number, "" + number);
                    same(client.get(of + ":" + number), "" + number);
                    client.incr("all");
                }
            };
        }
        together(jobs);
        same(client.get("all"), "" + jobs.length * count);
    }

    private void checkPipeline() {
        List<Response<?>> replies = new ArrayList<>();
        try (var pipeline = client.pipelined()) {
            for (int number = 0; number < count; number++) {
                replies.add(pipeline.set("key:" + number, "" + number));
                replies.add(pipeline.incr("sum"));
                replies.add(pipeline.hset("hash", "f" + number, "" + number));
            }
            var wrong = pipeline.lpop("sum");
            pipeline.sync();
            try {
                wrong.get();
                throw new AssertionError("an error in a pipeline was not told");
            } catch (JedisDataException e) {
                same(e.getMessage().startsWith("WRONGTYPE"), true);
            }
        }
        for (int number = 0; number < count; number++) {
            same(replies.get(3 * number).get(), "OK");
            same(replies.get(3 * number + 1).get(), number + 1L);
            same(replies.get(3 * number + 2).get(), 1L);
        }
        same(client.hlen("hash"), (long) count);
    }

    private void checkTransaction() throws Exception {
        client.mset("a", "1000", "b", "1000");
        Check move = () -> {
            for (int number = 0; number < count; number++) {
                try (var transaction = client.multi()) {
                    transaction.decr("a");
                    transaction.incr("b");
                    same(transaction.exec().size(), 2);
                }
            }
        };
        Check look = () -> {
            for (int number = 0; number < count; number++) {
                var found = client.mget("a", "b");
                same(Integer.parseInt(found.get(0)) + Integer.parseInt(found.get(1)), 2000);
            }
        };
        together(move, move, look);
        same(client.mget("a", "b"), List.of("" + (1000 - 2 * count), "" + (1000 + 2 * count)));
    }

    private void checkWatch() throws Exception {
        client.set("n", "0");
        Check add = () -> {
            for (int done = 0; done < count; ) {
                try (var transaction = client.transaction(false)) {
                    transaction.watch("n");
                    int found = Integer.parseInt(client.get("n"));
                    transaction.multi();
                    transaction.set("n", "" + (found + 1));
                    done += transaction.exec() == null ? 0 : 1;
                }
            }
        };
        together(add, add, add);
        same(client.get("n"), "" + 3 * count);
        try (var transaction = client.transaction(false)) {
            transaction.watch("n");
            client.set("n", "changed");
            transaction.multi();
            transaction.set("n", "overwritten");
            same(transaction.exec(), null);
        }
        same(client.get("n"), "changed");
    }

    private void checkMessages() throws Exception {
        List<String> plain = new ArrayList<>();
        List<String> pattern = new ArrayList<>();
        var isThere = new CountDownLatch(1);
        var listener = new JedisPubSub() {
            @Override
            public void onSubscribe(String channel, int subscribed) {
                psubscribe("new?");
            }

            @Override
            public void onPSubscribe(String of, int subscribed) {
                isThere.countDown();
            }

            @Override
            public void onMessage(String channel, String text) {
                plain.add(text);
                leaveAtEnd();
            }

            @Override
            public void onPMessage(String of, String channel, String text) {
                pattern.add(text);
                leaveAtEnd();
            }

            private void leaveAtEnd() {
                if (plain.size() + pattern.size() == 2 * count) {
                    unsubscribe();
                    punsubscribe();
                }
            }
        };
        together(() -> client.subscribe(listener, "news"), () -> {
            isThere.await();
            for (int number = 0; number < count; number++) {
                same(client.publish("news", "" + number), 2L);
            }
        });
        same(plain, numbers(count, 0));
        same(pattern, numbers(count, 0));
    }

    private void checkScripts() throws Exception {
        var echo = client.eval("return {KEYS[1], ARGV[1], #ARGV}", 1, "k", "a", "b");
        same(echo, List.of("k", "a", 2L));
        try {
            client.evalsha("0".repeat(40), 0);
            throw new AssertionError("an unknown script was run");
        } catch (JedisNoScriptException e) {
            same(e.getMessage().startsWith("NOSCRIPT"), true);
        }
        String sha = client.scriptLoad(
            "local n = redis.call('INCR', KEYS[1]) redis.call('RPUSH', KEYS[2], n) return n");
        Check run = () -> {
            for (int number = 0; number < count; number++) {
                client.evalsha(sha, 2, "n", "list");
            }
        };
        together(run, run, run);
        same(client.lrange("list", 0, -1), numbers(3 * count, 1));
        try {
            client.eval("return redis.call('LPOP', KEYS[1])", 1, "n");
            throw new AssertionError("an error of a script was not told");
        } catch (JedisDataException e) {
            same(e.getMessage().contains("WRONGTYPE"), true);
        }
    }

    private void checkBlocking() throws Exception {
        same(client.blpop(0.05, "queue"), null);
        List<String> found = new ArrayList<>();
        Check take = () -> {
            while (true) {
                String item = client.blpop((double) PATIENCE_SECONDS, "first", "queue").getValue();
                if (item.equals("end")) {
                    return;
                }
                synchronized (found) {
                    found.add(item);
                }
            }
        };
        together(take, take, () -> {
            for (int number = 0; number < count; number++) {
                client.rpush("queue", "" + number);
            }
            client.rpush("queue", "end", "end");
        });
        same(sorted(found), numbers(count, 0));
        together(
            () -> same(client.blmove("from", "to", ListDirection.LEFT, ListDirection.RIGHT,
                PATIENCE_SECONDS), "x"),
            () -> client.rpush("from", "x"));
        together(() -> {
            var least = client.bzpopmin(PATIENCE_SECONDS, "scores");
            same(least.getKey(), "scores");
            same(least.getValue().getElement(), "m");
            same(least.getValue().getScore(), 1.5);
        }, () -> client.zadd("scores", 1.5, "m"));
    }

    private void checkStream() throws Exception {
        client.xgroupCreate("stream", "group", new StreamEntryID("0-0"), true);
        for (int number = 0; number < count; number++) {
            client.xadd("stream", StreamEntryID.NEW_ENTRY, Map.of("number", "" + number));
        }
        List<String> found = new ArrayList<>();
        var unread = Map.of("stream", StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY);
        together(consumer("one", found, unread), consumer("two", found, unread));
        same(sorted(found), numbers(count, 0));
        long left = (count + 9) / 10;
        same(client.xpending("stream", "group").getTotal(), left);
        var claimed = client.xautoclaim("stream", "group", "three", 0, new StreamEntryID("0-0"),
            XAutoClaimParams.xAutoClaimParams().count(count));
        same((long) claimed.getValue().size(), left);
        var pending = client.xpending("stream", "group").getConsumerMessageCount();
        same(pending, Map.of("three", left));
    }

    private Check consumer(String name, List<String> found, Map<String, StreamEntryID> unread) {
        var some = XReadGroupParams.xReadGroupParams().count(7).block(50);
        return () -> {
            while (true) {
                synchronized (found) {
                    if (found.size() >= count) {
                        return;
                    }
                }
                var read = client.xreadGroup("group", name, some, unread);
                if (read == null || read.isEmpty()) {
                    continue;
                }
                for (var entry : read.get(0).getValue()) {
                    String number = entry.getFields().get("number");
                    synchronized (found) {
                        found.add(number);
                    }
                    if (!number.endsWith("0")) {
                        same(client.xack("stream", "group", entry.getID()), 1L);
                    }
                }
            }
        };
    }

    private void checkExpiry() throws Exception {
        client.set("soon", "1", SetParams.setParams().px(50));
        client.set("later", "1", SetParams.setParams().ex(1000));
        client.hset("hash", Map.of("soon", "1", "later", "1"));
        same(client.hpexpire("hash", 50, "soon"), List.of(1L));
        long left = client.ttl("later");
        same(left > 990 && left <= 1000, true);
        same(client.getEx("later", GetExParams.getExParams().persist()), "1");
        same(client.ttl("later"), -1L);
        until(() -> !client.exists("soon") && client.hlen("hash") == 1);
        same(client.hgetAll("hash"), Map.of("later", "1"));
        same(client.ttl("soon"), -2L);
    }

    // Writers, a consumer and a subscriber while the server is killed and started again.

    private static final String LUA_PAIR =
        "redis.call('SET', KEYS[1], ARGV[1]) redis.call('SET', KEYS[2], ARGV[1])";

    private interface Write {
        void run(String one, String other, String n);
    }

    /** A kind of writes: how one is made, the number of attempts, those that were acknowledged. */
    private static final class Writer {
        final Write write;
        volatile int attempts;
        volatile int done;
        final List<Integer> acknowledged = new ArrayList<>();

        Writer(Write write) {
            this.write = write;
        }
    }

    private final Map<String, Writer> writers = new LinkedHashMap<>();
    private volatile boolean isBack;
    private final AtomicReference<String> taken = new AtomicReference<>();
    private final AtomicReference<String> heard = new AtomicReference<>();

    private static String keyOf(String kind, int n, String part) {
        return kind + ":" + n + ":" + part;
    }

    private void checkKill() throws Exception {
        writers.put("key", new Writer((one, other, n) -> {
            client.set(one, n);
            client.set(other, n);
        }));
        writers.put("pipeline", new Writer((one, other, n) -> {
            try (var pipeline = client.pipelined()) {
                var replies = List.of(pipeline.set(one, n), pipeline.set(other, n));
                pipeline.sync();
                replies.forEach(reply -> same(reply.get(), "OK"));
            }
        }));
        writers.put("pair", new Writer((one, other, n) -> {
            try (var transaction = client.multi()) {
                transaction.set(one, n);
                transaction.set(other, n);
                same(transaction.exec(), List.of("OK", "OK"));
            }
        }));
        writers.put("script", new Writer((one, other, n) ->
            client.eval(LUA_PAIR, 2, one, other, n)));
        writers.put("entry", new Writer((one, other, n) ->
            client.xadd("entries", StreamEntryID.NEW_ENTRY, Map.of("n", n))));
        List<Check> jobs = new ArrayList<>(List.of(this::killServer, this::consume, this::listen));
        writers.forEach((kind, writer) -> jobs.add(() -> write(kind, writer)));
        together(jobs.toArray(Check[]::new));
    }

    private void write(String kind, Writer writer) throws Exception {
        for (int left = count; left > 0; ) {
            int n = ++writer.attempts;
            try {
                writer.write.run(keyOf(kind, n, "a"), keyOf(kind, n, "b"), "" + n);
            } catch (JedisDataException e) {
                // Only the loss of a connection is expected: an error of the server is none.
                throw e;
            } catch (JedisException e) {
                Thread.sleep(10);
                continue;
            }
            writer.acknowledged.add(n);
            writer.done++;
            left -= isBack ? 1 : 0;
        }
    }

    private void killServer() throws Exception {
        try {
            until(() -> writers.values().stream().allMatch(writer -> writer.done >= count));
            same(new ProcessBuilder(kill).inheritIO().start().waitFor(), 0);
        } finally {
            isBack = true;
        }
        until(() -> succeeds(() -> client.rpush("queue", "after")));
        until(() -> {
            succeeds(() -> client.publish("news", "after"));
            return heard.get() != null;
        });
    }

    private boolean succeeds(Check job) throws Exception {
        try {
            job.run();
            return true;
        } catch (JedisException e) {
            return false;
        }
    }

    private void consume() throws Exception {
        until(() -> succeeds(() -> {
            var found = client.blpop(1.0, "queue");
            taken.set(found == null ? null : found.getValue());
        }) && taken.get() != null);
    }

    private void listen() throws Exception {
        var listener = new JedisPubSub() {
            @Override
            public void onMessage(String channel, String text) {
                heard.set(text);
                unsubscribe();
            }
        };
        // This client does not subscribe again by itself.
        until(() -> succeeds(() -> client.subscribe(listener, "news")) && heard.get() != null);
    }

    private void checkKeeps() {
        Set<Integer> entries = new HashSet<>();
        for (var entry : client.xrange("entries", "-", "+")) {
            entries.add(Integer.valueOf(entry.getFields().get("n")));
        }
        writers.forEach((kind, writer) -> {
            same(writer.acknowledged.size() >= 2 * count, true);
            for (int n : writer.acknowledged) {
                if (kind.equals("entry")) {
                    same(entries.contains(n), true);
                } else {
                    var found = client.mget(keyOf(kind, n, "a"), keyOf(kind, n, "b"));
                    same(found, List.of("" + n, "" + n));
                }
            }
        });
    }

    private void checkWholes() {
        for (String kind : List.of("pair", "script")) {
            for (int n = 1; n <= writers.get(kind).attempts; n++) {
                var found = client.mget(keyOf(kind, n, "a"), keyOf(kind, n, "b"));
                same(found.get(0), found.get(1));
            }
        }
    }

    private void run(String name, Check check) {
        try {
            if (!name.startsWith("kill ")) {
                client.flushAll();
            }
            check.run();
            System.out.println("passed " + name);
        } catch (Throwable e) {
            System.out.println("failed " + name + ": " + e);
        }
    }

    private void runAll() {
        run("pool", this::checkPool);
        run("pipeline", this::checkPipeline);
        run("transaction", this::checkTransaction);
        run("watch", this::checkWatch);
        run("messages", this::checkMessages);
        run("scripts", this::checkScripts);
        run("blocking", this::checkBlocking);
        run("stream", this::checkStream);
        run("expiry", this::checkExpiry);
        run("kill", this::checkKill);
        run("kill keeps acknowledged", this::checkKeeps);
        run("kill leaves wholes", this::checkWholes);
        run("kill and a blocked consumer", () -> same(taken.get(), "after"));
        run("kill and a subscriber", () -> same(heard.get(), "after"));
        client.close();
    }

    public static void main(String[] arguments) {
        var kill = java.util.Arrays.copyOfRange(arguments, 2, arguments.length);
        int port = Integer.parseInt(arguments[0]);
        new JedisChecks(port, Integer.parseInt(arguments[1]), kill).runAll();
        // Threads of a check that has failed may wait still.
        System.exit(0);
    }
}
