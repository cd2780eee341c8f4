package io.gabion;

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Random;
import org.rocksdb.BlockBasedTableConfig;
import org.rocksdb.BloomFilter;
import org.rocksdb.LRUCache;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.RocksIterator;

/**
 * Puts, gets and scans of one thread, beside RocksDB's, in turns. From {@code bindings/java/gabion}:
 *
 * <pre>
 * mvn -q test-compile exec:java@bench -Dgabion.profile=measure -Dexec.args="1000000 3"
 * </pre>
 */
final class Bench {
    private static final int VALUE_BYTES = 100;

    private Bench() {}

    /** A store of either kind. */
    private interface Target extends AutoCloseable {
        void put(byte[] key, byte[] value) throws RocksDBException;

        byte[] get(byte[] key) throws RocksDBException;

        long scan();

        @Override
        void close();
    }

    private static Target gabion(Path directory) {
        Store store = Gabion.open(directory);
        Keyspace keyspace = store.defaultKeyspace();
        return new Target() {
            @Override
            public void put(byte[] key, byte[] value) {
                keyspace.put(key, value);
            }

            @Override
            public byte[] get(byte[] key) {
                return keyspace.get(key);
            }

            @Override
            public long scan() {
                long count = 0;
                try (PairIterator pairs = keyspace.iterator()) {
                    for (; pairs.hasNext(); count++) {
                        pairs.next();
                    }
                }
                return count;
            }

            @Override
            public void close() {
                store.close();
            }
        };
    }

    private static Target rocksdb(Path directory) throws RocksDBException {
        RocksDB.loadLibrary();
        // With what its guide advises for gets: a filter, and a cache in which all has room.
        BlockBasedTableConfig tables = new BlockBasedTableConfig();
        tables.setFilterPolicy(new BloomFilter(10)).setBlockCache(new LRUCache(512L << 20));
        org.rocksdb.Options options = new org.rocksdb.Options();
        options.setCreateIfMissing(true).setTableFormatConfig(tables);
        RocksDB db = RocksDB.open(options, directory.toString());
        return new Target() {
            @Override
            public void put(byte[] key, byte[] value) throws RocksDBException {
                db.put(key, value);
            }

            @Override
            public byte[] get(byte[] key) throws RocksDBException {
                return db.get(key);
            }

            @Override
            public long scan() {
                long count = 0;
                try (RocksIterator pairs = db.newIterator()) {
                    for (pairs.seekToFirst(); pairs.isValid(); pairs.next(), count++) {
                        pairs.key();
                        pairs.value();
                    }
                }
                return count;
            }

            @Override
            public void close() {
                db.close();
            }
        };
    }

    private static byte[] key(long number) {
        // Spread, so that puts are in no order.
        return ByteBuffer.allocate(16).putLong(number * 0x9E3779B97F4A7C15L).putLong(number)
                .array();
    }

    private static void print(String name, String what, long count, long nanos) {
        System.out.printf("%-8s %-5s %,12.0f a second%n", name, what, count * 1e9 / nanos);
    }

    private static void turn(String name, Target target, int keys) throws RocksDBException {
        byte[] value = new byte[VALUE_BYTES];
        Random random = new Random(1);
        long start = System.nanoTime();
        for (int i = 0; i < keys; i++) {
            random.nextBytes(value);
            target.put(key(i), value);
        }
        print(name, "puts", keys, System.nanoTime() - start);
        start = System.nanoTime();
        for (int i = 0; i < keys; i++) {
            if (target.get(key(random.nextInt(keys))) == null) {
                throw new IllegalStateException("a key is missing");
            }
        }
        print(name, "gets", keys, System.nanoTime() - start);
        start = System.nanoTime();
        long seen = target.scan();
        print(name, "scan", seen, System.nanoTime() - start);
        if (seen != keys) {
            throw new IllegalStateException("a scan saw " + seen + " of " + keys);
        }
    }

    /** Takes the number of keys and of turns. */
    public static void main(String[] arguments) throws Exception {
        int keys = arguments.length > 0 ? Integer.parseInt(arguments[0]) : 1_000_000;
        int turns = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 3;
        Path directory = Files.createTempDirectory("gabion-bench");
        for (int turn = 0; turn < turns; turn++) {
            try (Target target = gabion(directory.resolve("gabion" + turn))) {
                turn("Gabion", target, keys);
            }
            try (Target target = rocksdb(directory.resolve("rocksdb" + turn))) {
                turn("RocksDB", target, keys);
            }
        }
        System.out.println("the stores are in " + directory);
    }
}
