package io.gabion;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class StoreTest {
    @TempDir Path directory;

    static byte[] bytes(String text) {
        return text.getBytes(UTF_8);
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, UTF_8);
    }

    private static byte[] number(long number) {
        return ByteBuffer.allocate(8).order(java.nio.ByteOrder.LITTLE_ENDIAN)
                .putLong(number).array();
    }

    private static void assertCode(Code code, Runnable body) {
        assertEquals(code, assertThrows(GabionException.class, body::run).code());
    }

    private Store open() {
        return Gabion.open(directory.resolve("store"));
    }

    @Test
    void whatWasWrittenIsThereAfterAnOpen() {
        try (Store store = open()) {
            Keyspace stones = store.keyspace("stones");
            assertSame(stones, store.keyspace("stones"));
            assertSame(stones, store.existingKeyspace("stones"));
            stones.put(bytes("granite"), bytes("grey"));
            stones.put(bytes(""), bytes(""));
            store.defaultKeyspace().put(bytes("granite"), new byte[3 << 20]);
            assertTrue(stones.contains(bytes("granite")));
            stones.put(bytes("chalk"), bytes("white"));
            stones.delete(bytes("chalk"));
            store.persist();
        }
        try (Store store = open()) {
            Keyspace stones = store.existingKeyspace("stones");
            assertEquals("grey", text(stones.get(bytes("granite"))));
            assertEquals("", text(stones.get(bytes(""))));
            assertNull(stones.get(bytes("chalk")));
            assertFalse(stones.contains(bytes("chalk")));
            assertEquals(3 << 20, store.defaultKeyspace().get(bytes("granite")).length);
            assertEquals(List.of("default", "stones"),
                    store.keyspaceNames().stream().sorted().collect(Collectors.toList()));
            List<byte[]> values = stones.multiGet(
                    List.of(bytes("granite"), bytes("chalk"), bytes("")));
            assertEquals(Arrays.asList("grey", null, ""),
                    values.stream().map(StoreTest::text).collect(Collectors.toList()));
            assertEquals(List.of(), stones.multiGet(List.of()));
        }
    }

    @Test
    void failuresAreExceptionsOfTheirKind() {
        assertEquals(
                Arrays.stream(Code.values()).map(Code::name).collect(Collectors.joining(",")),
                Native.codes());
        for (Code code : Code.values()) {
            assertEquals(code, GabionException.of(code.ordinal() + 1, "").code());
        }
        assertEquals(Code.INTERNAL, GabionException.of(99, "of a newer library").code());
        assertTrue(Gabion.optionNames().containsAll(List.of("memory_bytes_max", "isolation")));
        var unknown = assertThrows(InvalidRequestException.class,
                () -> Gabion.open(directory, new Options().set("colour", "grey")));
        assertTrue(unknown.getMessage().contains("colour"), unknown.getMessage());
        assertCode(Code.NOT_A_STORE,
                () -> Gabion.open(directory.resolve("none"), new Options().createIfMissing(false)));
        try (Store store = open()) {
            assertThrows(LockedException.class, this::open);
            assertCode(Code.NO_SUCH_KEYSPACE, () -> store.existingKeyspace("none"));
            Keyspace keyspace = store.keyspace("stones");
            assertCode(Code.LIMIT, () -> keyspace.put(new byte[1 << 16], bytes("")));
            assertThrows(NullPointerException.class, () -> keyspace.get((byte[]) null));
            assertCode(Code.INVALID_ARGUMENT, () -> keyspace.merge(null, bytes("")));
            assertThrows(MergeException.class, () -> keyspace.merge(bytes("a"), bytes("b")));
            store.dropKeyspace("stones");
            assertCode(Code.KEYSPACE_DROPPED, () -> keyspace.get(bytes("a")));
            store.keyspace("stones").put(bytes("a"), bytes("b"));
            store.close();
            assertCode(Code.CLOSED, () -> keyspace.get(bytes("a")));
        }
        try (Store store = Gabion.open(directory.resolve("store"), new Options().readOnly(true))) {
            assertThrows(StorageException.class,
                    () -> store.defaultKeyspace().put(bytes("a"), bytes("b")));
        }
        Gabion.destroy(directory.resolve("store"));
        assertFalse(Files.exists(directory.resolve("store").resolve("CURRENT")));
    }

    @Test
    void whatIsClosedSaysSo() {
        Store store = open();
        Keyspace keyspace = store.defaultKeyspace();
        keyspace.put(bytes("a"), bytes("b"));
        Snapshot snapshot = store.snapshot();
        Transaction transaction = store.begin();
        PairIterator iterator = keyspace.iterator();
        assertTrue(iterator.hasNext());
        iterator.close();
        assertCode(Code.CLOSED, iterator::hasNext);
        assertCode(Code.CLOSED, () -> iterator.seek(bytes("a")));
        snapshot.close();
        assertCode(Code.CLOSED, () -> snapshot.get(keyspace, bytes("a")));
        transaction.close();
        assertCode(Code.ENDED, () -> transaction.get(keyspace, bytes("a")));
        assertCode(Code.ENDED, transaction::commit);
        Snapshot outlives = store.snapshot();
        PairIterator outlasts = keyspace.iterator();
        store.close();
        store.close();
        assertTrue(store.isClosed());
        var closed = assertThrows(ClosedException.class, store::statsJson);
        for (Runnable use : List.<Runnable>of(
                () -> keyspace.get(bytes("a")), () -> keyspace.put(bytes("a"), bytes("b")),
                () -> store.keyspace("new"), () -> store.write(new WriteBatch()),
                store::begin, store::snapshot, store::flush,
                () -> outlives.get(keyspace, bytes("a")))) {
            var other = assertThrows(ClosedException.class, use::run);
            assertEquals(closed.getMessage(), other.getMessage());
        }
        outlives.close();
        outlasts.close();
        open().close();
    }

    @Test
    void aBatchTakesEffectAsOne() {
        try (Store store = open();
                Store other = Gabion.open(directory.resolve("other"))) {
            Keyspace one = store.keyspace("one");
            Keyspace two = store.keyspace("two", new KeyspaceOptions().merge("add_u64"));
            one.put(bytes("old"), bytes("x"));
            WriteBatch batch = new WriteBatch()
                    .put(one, bytes("a"), bytes("1"))
                    .deleteRange(one, KeyRange.of(bytes("o"), bytes("p")))
                    .delete(one, bytes("none"))
                    .merge(two, bytes("sum"), number(5))
                    .merge(two, bytes("sum"), number(6))
                    .putExpiring(one, bytes("gone"), bytes("x"), Instant.EPOCH)
                    .putExpiring(one, bytes("there"), bytes("y"), Duration.ofHours(1));
            assertEquals(7, batch.count());
            store.write(batch);
            assertEquals("1", text(one.get(bytes("a"))));
            assertNull(one.get(bytes("old")));
            assertNull(one.get(bytes("gone")));
            assertArrayEquals(number(11), two.get(bytes("sum")));
            assertTrue(one.expiresAt(bytes("there")).isAfter(Instant.now()));
            assertNull(one.expiresAt(bytes("a")));
            batch.clear();
            store.write(batch, Durability.SYNC);
            batch.put(one, bytes("b"), bytes("2"))
                    .put(other.defaultKeyspace(), bytes("b"), bytes("2"));
            assertCode(Code.FOREIGN_KEYSPACE, () -> store.write(batch));
            assertNull(one.get(bytes("b")));
            for (KeyRange range : List.of(
                    KeyRange.of(null, bytes("b")), KeyRange.of(bytes("t"), null),
                    KeyRange.all())) {
                one.put(bytes("a"), bytes("1"));
                one.put(bytes("t"), bytes("1"));
                store.write(new WriteBatch().deleteRange(one, range));
                assertEquals(range.lower != null, one.contains(bytes("a")));
                assertEquals(range.upper != null, one.contains(bytes("t")));
            }
        }
    }

    @Test
    void buffersGoInAndOut() {
        try (Store store = open()) {
            Keyspace keyspace = store.defaultKeyspace();
            List<Supplier<ByteBuffer>> kinds =
                    List.of(() -> ByteBuffer.allocateDirect(64), () -> ByteBuffer.allocate(64));
            for (Supplier<ByteBuffer> kind : kinds) {
                ByteBuffer key = kind.get().put(bytes("--stone--"));
                key.limit(7).position(2);
                ByteBuffer value = kind.get().put(bytes("granite")).flip();
                keyspace.put(key, value);
                assertEquals(0, key.remaining() + value.remaining());
                assertEquals("granite", text(keyspace.get(bytes("stone"))));
                key.position(2);
                ByteBuffer small = kind.get();
                small.limit(13).position(7);
                assertEquals(7, keyspace.get(key, small));
                assertEquals(6, small.remaining());
                key.position(2);
                small.limit(20);
                assertEquals(7, keyspace.get(key, small));
                assertEquals("granite", text(Reads.bytes(small)));
                key.position(3);
                assertEquals(-1, keyspace.get(key, small));
                keyspace.delete(bytes("stone"));
            }
            ByteBuffer none = ByteBuffer.allocateDirect(0);
            keyspace.put(none, none);
            assertEquals(0, keyspace.get(none, none));
            ByteBuffer heap = ByteBuffer.allocate(8);
            assertCode(Code.INVALID_ARGUMENT, () -> Native.putBuffer(
                    0, keyspace.number, heap, 0, 8, heap, 0, 8));
            ByteBuffer direct = ByteBuffer.allocateDirect(8);
            int[][] outside = {{-1, 2}, {0, 9}, {8, 1}, {9, 0}, {4, -1}, {1, Integer.MAX_VALUE}};
            for (int[] part : outside) {
                assertCode(Code.INVALID_ARGUMENT, () -> Native.putBuffer(
                        0, keyspace.number, direct, part[0], part[1], direct, 0, 8));
            }
        }
    }

    @Test
    void valuesExpireMergeAndSwap() {
        try (Store store = open()) {
            Keyspace words = store.keyspace("words", new KeyspaceOptions().merge("append:,"));
            words.merge(bytes("a"), bytes("x"));
            words.merge(bytes("a"), bytes("y"));
            assertEquals("x,y", text(words.get(bytes("a"))));
            words.putExpiring(bytes("b"), bytes("x"), Duration.ZERO);
            words.putExpiring(bytes("c"), bytes("x"), Instant.now().plusSeconds(3600));
            assertNull(words.get(bytes("b")));
            assertNotNull(words.expiresAt(bytes("c")));
            assertTrue(words.compareAndSwap(bytes("d"), null, bytes("1")));
            assertFalse(words.compareAndSwap(bytes("d"), null, bytes("2")));
            assertTrue(words.compareAndSwap(bytes("d"), bytes("1"), null));
            assertNull(words.get(bytes("d")));
            Keyspace brief = store.keyspace(
                    "brief", new KeyspaceOptions().defaultExpiry(Duration.ofDays(1)));
            brief.put(bytes("a"), bytes("b"));
            assertNotNull(brief.expiresAt(bytes("a")));
        }
    }

    @Test
    void aSnapshotStaysAndACheckpointIsAStore() {
        Path copy = directory.resolve("copy");
        try (Store store = open()) {
            Keyspace keyspace = store.defaultKeyspace();
            keyspace.put(bytes("a"), bytes("1"));
            try (Snapshot snapshot = store.snapshot()) {
                keyspace.put(bytes("a"), bytes("2"));
                keyspace.put(bytes("b"), bytes("2"));
                assertEquals("1", text(snapshot.get(keyspace, bytes("a"))));
                assertFalse(snapshot.contains(keyspace, bytes("b")));
                assertEquals(1, snapshot.multiGet(keyspace, List.of(bytes("a"))).size());
                assertNull(snapshot.expiresAt(keyspace, bytes("a")));
                try (PairIterator pairs = snapshot.iterator(keyspace, KeyRange.all())) {
                    assertEquals("1", text(pairs.next().value()));
                    assertFalse(pairs.hasNext());
                }
                assertCode(Code.INVALID_ARGUMENT, () -> Native.put(
                        snapshot.number, keyspace.number, bytes("a"), bytes("b")));
            }
            store.flush();
            store.checkpoint(copy);
            assertTrue(store.statsJson().startsWith("{") && store.statsJson().endsWith("}"));
        }
        try (Store store = Gabion.open(copy)) {
            assertEquals("2", text(store.defaultKeyspace().get(bytes("a"))));
        }
    }

    @Test
    void transactionsConflictAndRunAgain() throws Exception {
        try (Store store = open()) {
            Keyspace keyspace = store.defaultKeyspace();
            for (Isolation isolation : Isolation.values()) {
                TransactionOptions options = new TransactionOptions().isolation(isolation);
                keyspace.put(bytes("read"), bytes("1"));
                try (Transaction transaction = store.begin(options)) {
                    transaction.get(keyspace, bytes("read"));
                    transaction.put(keyspace, bytes("own"), bytes("1"));
                    keyspace.put(bytes("read"), bytes("2"));
                    assertEquals("1", text(transaction.get(keyspace, bytes("read"))));
                    assertNull(keyspace.get(bytes("own")));
                    if (isolation == Isolation.SERIALIZABLE) {
                        assertThrows(ConflictException.class, transaction::commit);
                        assertNull(keyspace.get(bytes("own")));
                    } else {
                        transaction.commit(Durability.SYNC);
                        assertEquals("1", text(keyspace.get(bytes("own"))));
                    }
                    assertFalse(transaction.rollback());
                }
                try (Transaction transaction = store.begin(options)) {
                    transaction.getForUpdate(keyspace, bytes("read"));
                    transaction.put(keyspace, bytes("other"), bytes("1"));
                    keyspace.put(bytes("read"), bytes("3"));
                    assertCode(Code.CONFLICT, transaction::commit);
                }
            }
            try (Transaction transaction = store.begin()) {
                transaction.put(keyspace, bytes("a"), bytes("1"));
                long savepoint = transaction.savepoint();
                transaction.put(keyspace, bytes("a"), bytes("2"));
                transaction.delete(keyspace, bytes("read"));
                transaction.deleteRange(keyspace, KeyRange.prefix(bytes("ow")));
                transaction.putExpiring(keyspace, bytes("b"), bytes("x"), Duration.ofHours(1));
                transaction.putExpiring(keyspace, bytes("c"), bytes("x"), Instant.EPOCH);
                assertEquals("2", text(transaction.get(keyspace, bytes("a"))));
                transaction.rollbackTo(savepoint);
                assertCode(Code.NO_SUCH_SAVEPOINT, () -> transaction.rollbackTo(99));
                try (PairIterator pairs = transaction.iterator(keyspace, KeyRange.all())) {
                    assertEquals("a", text(pairs.next().key()));
                    transaction.put(keyspace, bytes("b"), bytes("written meanwhile"));
                    assertEquals("b", text(pairs.next().key()));
                }
                assertTrue(transaction.rollback());
            }
            int[] runs = {0};
            String answer = store.transact(transaction -> {
                transaction.get(keyspace, bytes("counter"));
                if (runs[0]++ < 5) {
                    keyspace.put(bytes("counter"), bytes("disturbed " + runs[0]));
                }
                transaction.put(keyspace, bytes("counter"), bytes("done"));
                return "after " + runs[0];
            });
            assertEquals("after 6", answer);
            assertThrows(java.io.IOException.class, () -> store.transact(transaction -> {
                transaction.put(keyspace, bytes("counter"), bytes("never"));
                throw new java.io.IOException("rolls back");
            }));
            assertEquals("done", text(keyspace.get(bytes("counter"))));
            int[] tries = {0};
            assertThrows(ConflictException.class, () -> store.transact(
                    new TransactionOptions().attemptsMax(2), transaction -> {
                        transaction.get(keyspace, bytes("counter"));
                        keyspace.put(bytes("counter"), bytes("disturbed " + tries[0]++));
                        transaction.put(keyspace, bytes("counter"), bytes("never"));
                        return null;
                    }));
            assertEquals(2, tries[0]);
        }
    }

    @Test
    void countersOfManyThreadsLoseNothing() throws Exception {
        try (Store store = open()) {
            Keyspace keyspace = store.defaultKeyspace();
            List<Throwable> failures = new ArrayList<>();
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < 4; i++) {
                Thread thread = new Thread(() -> {
                    for (int turn = 0; turn < 100; turn++) {
                        store.transact(new TransactionOptions().attemptsMax(100_000), own -> {
                            byte[] old = own.get(keyspace, bytes("n"));
                            long count = old == null ? 0 : Long.parseLong(text(old));
                            own.put(keyspace, bytes("n"), bytes(Long.toString(count + 1)));
                            return null;
                        });
                    }
                });
                thread.setUncaughtExceptionHandler((own, failure) -> {
                    synchronized (failures) {
                        failures.add(failure);
                    }
                });
                threads.add(thread);
            }
            threads.forEach(Thread::start);
            for (Thread thread : threads) {
                thread.join();
            }
            assertEquals(List.of(), failures);
            assertEquals("400", text(keyspace.get(bytes("n"))));
        }
    }

    @Test
    void theLibraryOfAnotherPlatformIsMissedByName() {
        assertTrue(Stream.of("linux-", "macos-").anyMatch(Native.platform()::startsWith));
        assertFalse(Native.platform().endsWith("amd64"));
    }
}
