package io.gabion;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicReferenceArray;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Calls in any order, from eight threads, on objects that others of them close meanwhile. Each ends
 * well or with an exception that says what is wrong; none ends the VM.
 *
 * <p>GABION_WRONG_CALLS is the number of calls, 10,000 by default; GABION_SEED repeats a run.
 */
class WrongOrderTest {
    private static final int THREADS = 8;
    private static final int OBJECTS = 6;

    /** What calls in a wrong order may end with. */
    private static final Set<Code> EXPECTED = EnumSet.of(
            Code.CLOSED, Code.ENDED, Code.BUSY, Code.CONFLICT, Code.LOCKED, Code.KEYSPACE_DROPPED,
            Code.NO_SUCH_KEYSPACE, Code.NO_SUCH_SAVEPOINT, Code.FOREIGN_KEYSPACE);

    @TempDir Path directory;

    private final AtomicReferenceArray<Store> stores = new AtomicReferenceArray<>(2);
    private final AtomicReferenceArray<Keyspace> keyspaces = new AtomicReferenceArray<>(OBJECTS);
    private final AtomicReferenceArray<Snapshot> snapshots = new AtomicReferenceArray<>(OBJECTS);
    private final AtomicReferenceArray<Transaction> transactions =
            new AtomicReferenceArray<>(OBJECTS);
    private final AtomicReferenceArray<PairIterator> iterators =
            new AtomicReferenceArray<>(OBJECTS);

    @Test
    void noOrderOfCallsEndsTheVm() throws Exception {
        String given = System.getenv("GABION_WRONG_CALLS");
        int calls = given == null ? 10_000 : Integer.parseInt(given);
        String seeded = System.getenv("GABION_SEED");
        long seed = seeded == null ? System.nanoTime() : Long.parseLong(seeded);
        for (int i = 0; i < stores.length(); i++) {
            openStore(i);
        }
        ConcurrentLinkedQueue<Throwable> failures = new ConcurrentLinkedQueue<>();
        List<Thread> threads = new ArrayList<>();
        List<int[]> ends = new ArrayList<>();
        for (int i = 0; i < THREADS; i++) {
            Random random = new Random(seed + i);
            int[] count = {0, 0};
            ends.add(count);
            Thread thread = new Thread(() -> {
                for (int call = 0; call < calls / THREADS; call++) {
                    try {
                        call(random);
                        count[0]++;
                    } catch (GabionException exception) {
                        count[1]++;
                        if (!EXPECTED.contains(exception.code())) {
                            failures.add(exception);
                        }
                    } catch (Throwable failure) {
                        failures.add(failure);
                    }
                }
            });
            threads.add(thread);
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        for (int i = 0; i < stores.length(); i++) {
            stores.get(i).close();
        }
        for (int i = 0; i < OBJECTS; i++) {
            close(snapshots.get(i));
            close(transactions.get(i));
            close(iterators.get(i));
        }
        String place = "seed " + seed;
        for (Throwable failure : failures) {
            throw new AssertionError(place, failure);
        }
        int well = ends.stream().mapToInt(count -> count[0]).sum();
        int refused = ends.stream().mapToInt(count -> count[1]).sum();
        assertEquals(calls / THREADS * THREADS, well + refused, place);
        assertTrue(well > calls / 10 && refused > calls / 100, place + ": " + well + " " + refused);
        // All numbers are free again, and the stores open.
        for (int i = 0; i < stores.length(); i++) {
            Gabion.open(directory.resolve("store" + i)).close();
        }
    }

    private static void close(Handle handle) {
        if (handle != null) {
            handle.close();
        }
    }

    private void openStore(int which) {
        Options options = new Options().memoryBytesMax(64 << 20);
        Store store = Gabion.open(directory.resolve("store" + which), options);
        stores.set(which, store);
        for (int i = which; i < OBJECTS; i += 2) {
            keyspaces.set(i, i < 2 ? store.defaultKeyspace() : store.keyspace("k" + i % 3));
        }
    }

    private static byte[] key(Random random) {
        byte[] key = new byte[random.nextInt(3)];
        random.nextBytes(key);
        return key;
    }

    private static KeyRange range(Random random) {
        return random.nextBoolean() ? KeyRange.all() : KeyRange.of(key(random), key(random));
    }

    private static <H extends Handle> void replace(
            AtomicReferenceArray<H> places, int at, H made) {
        close(places.getAndSet(at, made));
    }

    private void call(Random random) {
        int which = random.nextInt(2);
        int at = random.nextInt(OBJECTS);
        Store store = stores.get(which);
        Keyspace keyspace = keyspaces.get(at);
        Snapshot snapshot = snapshots.get(random.nextInt(OBJECTS));
        Transaction transaction = transactions.get(random.nextInt(OBJECTS));
        PairIterator iterator = iterators.get(at);
        int call = random.nextInt(32);
        if (call < 12) {
            plain(call, random, store, keyspace);
        } else if (call < 16) {
            if (call == 12 || snapshot == null) {
                replace(snapshots, at, store.snapshot());
            } else if (call == 13) {
                snapshot.get(keyspace, key(random));
            } else if (call == 14) {
                replace(iterators, at, snapshot.iterator(keyspace, range(random)));
            } else {
                snapshot.close();
            }
        } else if (call < 24) {
            if (call == 16 || transaction == null) {
                replace(transactions, at, store.begin());
            } else {
                inTransaction(call, random, transaction, keyspace, at);
            }
        } else if (call < 28) {
            if (call == 24 || iterator == null) {
                replace(iterators, at, keyspace.reversed(range(random)));
            } else if (call == 25) {
                // A page as the iterator asks for it, which several threads may do at once.
                Native.page(iterator.number, random.nextInt(100), 1 << 16);
            } else if (call == 26) {
                Native.seek(iterator.number, key(random));
            } else {
                iterator.close();
            }
        } else if (call == 28) {
            // A number that nobody gave.
            assertThrown(() -> Native.get(0, random.nextLong(), key(random)));
            assertThrown(() -> Native.page(random.nextLong(), 1, 1));
            assertThrown(() -> Native.get(keyspace.number, keyspace.number, key(random)));
        } else if (call == 29 && random.nextInt(8) == 0) {
            store.dropKeyspace("k" + random.nextInt(3));
            keyspaces.set(at, store.keyspace("k" + at % 3));
        } else if (random.nextInt(20) == 0) {
            synchronized (stores) {
                store.close();
                if (stores.get(which) == store) {
                    openStore(which);
                }
            }
        }
    }

    private static void assertThrown(Runnable body) {
        try {
            body.run();
        } catch (GabionException expected) {
            return;
        }
        throw new AssertionError("a number that nobody gave was taken");
    }

    private void plain(int call, Random random, Store store, Keyspace keyspace) {
        byte[] key = key(random);
        ByteBuffer direct = ByteBuffer.allocateDirect(16);
        switch (call) {
            case 0:
                keyspace.put(key, new byte[random.nextInt(300)]);
                break;
            case 1:
                keyspace.get(key);
                break;
            case 2:
                keyspace.delete(key);
                break;
            case 3:
                keyspace.deleteRange(range(random));
                break;
            case 4:
                keyspace.multiGet(List.of(key, key(random)));
                break;
            case 5:
                keyspace.get(direct.duplicate().limit(random.nextInt(3)), direct);
                break;
            case 6:
                keyspace.put(direct.duplicate().limit(random.nextInt(3)), direct);
                break;
            case 7:
                WriteBatch batch = new WriteBatch();
                batch.put(keyspace, key, key).delete(keyspaces.get(random.nextInt(OBJECTS)), key);
                store.write(batch);
                break;
            case 8:
                keyspace.putExpiring(key, key, Duration.ofMillis(random.nextInt(20)));
                break;
            case 9:
                keyspace.compareAndSwap(key, null, key);
                break;
            case 10:
                store.statsJson();
                break;
            default:
                keyspace.contains(key);
        }
    }

    private void inTransaction(
            int call, Random random, Transaction transaction, Keyspace keyspace, int at) {
        byte[] key = key(random);
        switch (call) {
            case 17:
                transaction.get(keyspace, key);
                break;
            case 18:
                transaction.put(keyspace, key, key);
                break;
            case 19:
                transaction.rollbackTo(transaction.savepoint() - random.nextInt(2));
                break;
            case 20:
                transaction.commit();
                break;
            case 21:
                replace(iterators, at, transaction.iterator(keyspace, range(random)));
                break;
            case 22:
                transaction.deleteRange(keyspace, range(random));
                break;
            default:
                transaction.close();
        }
    }
}
