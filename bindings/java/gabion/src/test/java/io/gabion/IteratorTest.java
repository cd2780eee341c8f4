package io.gabion;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.NavigableMap;
import java.util.NoSuchElementException;
import java.util.Random;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class IteratorTest {
    @TempDir Path directory;

    private static byte[] key(Random random) {
        byte[] key = new byte[random.nextInt(4)];
        for (int i = 0; i < key.length; i++) {
            key[i] = (byte) (random.nextInt(6) * 51);
        }
        return key;
    }

    private static NavigableMap<byte[], byte[]> within(
            NavigableMap<byte[], byte[]> map, KeyRange range) {
        if (range.lower != null && range.upper != null
                && Arrays.compareUnsigned(range.lower, range.upper) > 0) {
            return new TreeMap<>(Arrays::compareUnsigned);
        }
        var above = range.lower == null ? map : map.tailMap(range.lower, true);
        return range.upper == null ? above : above.headMap(range.upper, false);
    }

    private static KeyRange range(Random random) {
        switch (random.nextInt(6)) {
            case 0:
                return KeyRange.all();
            case 1:
                return KeyRange.prefix(key(random));
            case 2:
                return KeyRange.closed(key(random), key(random));
            case 3:
                return KeyRange.of(key(random), null);
            case 4:
                return KeyRange.of(null, key(random));
            default:
                return KeyRange.of(key(random), key(random));
        }
    }

    /** Beside a map, which goes the same way. */
    @Test
    void iteratorsGoAsAMapDoes() {
        long seed = Long.getLong("gabion.seed", System.nanoTime());
        Random random = new Random(seed);
        try (Store store = Gabion.open(directory.resolve("store"))) {
            Keyspace keyspace = store.defaultKeyspace();
            NavigableMap<byte[], byte[]> map = new TreeMap<>(Arrays::compareUnsigned);
            for (int i = 0; i < 150; i++) {
                byte[] key = key(random);
                byte[] value = new byte[random.nextInt(9000)];
                random.nextBytes(value);
                map.put(key, value);
                keyspace.put(key, value);
            }
            for (int turn = 0; turn < 200; turn++) {
                String place = "seed " + seed + ", turn " + turn;
                KeyRange range = range(random);
                boolean isReversed = random.nextBoolean();
                NavigableMap<byte[], byte[]> inside = within(map, range);
                inside = isReversed ? inside.descendingMap() : inside;
                try (Snapshot snapshot = store.snapshot();
                        Transaction transaction = store.begin();
                        PairIterator pairs = pairs(
                                turn % 3, keyspace, snapshot, transaction, range, isReversed)) {
                    byte[] seek = key(random);
                    if (random.nextBoolean()) {
                        pairs.hasNext();
                        pairs.seek(seek);
                        inside = within(map, range).containsKey(seek)
                                        || within(Map.of(seek, seek).entrySet().stream().collect(
                                                () -> new TreeMap<>(Arrays::compareUnsigned),
                                                (to, one) -> to.put(one.getKey(), one.getValue()),
                                                TreeMap::putAll), range).size() == 1
                                ? inside.tailMap(seek, true)
                                : new TreeMap<>();
                    }
                    for (Map.Entry<byte[], byte[]> expected : inside.entrySet()) {
                        assertArrayEquals(expected.getKey(), pairs.peekKey(), place);
                        Pair pair = pairs.next();
                        assertArrayEquals(expected.getKey(), pair.key(), place);
                        assertArrayEquals(expected.getValue(), pair.value(), place);
                    }
                    assertNull(pairs.peekKey(), place);
                    assertFalse(pairs.hasNext(), place);
                    assertThrows(NoSuchElementException.class, pairs::next, place);
                }
            }
        }
    }

    private static PairIterator pairs(
            int by, Keyspace keyspace, Snapshot snapshot, Transaction transaction, KeyRange range,
            boolean isReversed) {
        if (by == 0) {
            return isReversed ? keyspace.reversed(range) : keyspace.iterator(range);
        }
        View view = by == 1 ? snapshot : transaction;
        return isReversed ? view.reversed(keyspace, range) : view.iterator(keyspace, range);
    }

    @Test
    void longScansComeInPages() {
        try (Store store = Gabion.open(directory.resolve("store"))) {
            Keyspace keyspace = store.defaultKeyspace();
            WriteBatch batch = new WriteBatch();
            for (int i = 0; i < 20_000; i++) {
                batch.put(keyspace, StoreTest.bytes(String.format("%06d", i)), new byte[i % 50]);
            }
            store.write(batch);
            try (PairIterator pairs = keyspace.iterator()) {
                keyspace.deleteRange(KeyRange.all());
                for (int i = 0; i < 20_000; i++) {
                    assertEquals(i, Integer.parseInt(StoreTest.text(pairs.next().key())));
                }
                assertFalse(pairs.hasNext());
            }
            try (PairIterator pairs = keyspace.iterator()) {
                assertFalse(pairs.hasNext());
            }
        }
    }
}
