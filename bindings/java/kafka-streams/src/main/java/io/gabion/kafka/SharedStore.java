package io.gabion.kafka;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.gabion.Gabion;
import io.gabion.GabionException;
import io.gabion.KeyRange;
import io.gabion.Keyspace;
import io.gabion.NoSuchKeyspaceException;
import io.gabion.Options;
import io.gabion.Pair;
import io.gabion.PairIterator;
import io.gabion.Store;
import io.gabion.WriteBatch;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.processor.TaskId;

/**
 * The store of Gabion that all state stores of a state directory share, so that a process has one
 * ceiling of memory, one log and one set of threads, however many tasks and stores it runs.
 *
 * <p>Kafka locks the state directory for the process, and hands out tasks within it, so one open
 * store for all of them is in nobody's way. But Kafka's unit of removal is the directory of a task:
 * it deletes one to give up its state. So each state store has a marker in the directory of its
 * task, with the name of its keyspace. What has no marker is nobody's, and is dropped.
 *
 * <p>Keyspaces are named by a number that is used once. The keyspace {@code streams} has, under
 * {@code s}, directory and name of each state store with its keyspace; under {@code m}, keyspace
 * and kind, what a store keeps beside its pairs: offsets and position. The marker is written after
 * the first batch, so a crash between leaves a keyspace without one.
 */
final class SharedStore {
    /** Settings of the store, as Kafka's configuration has them: {@code gabion.NAME}. */
    static final String PREFIX = "gabion.";

    static final String UNCOMMITTED_BYTES_MAX = PREFIX + "uncommitted.bytes.max";

    private static final String DIRECTORY = "gabion";
    private static final Map<Path, SharedStore> OPEN = new HashMap<>();

    private final Path base;
    private final Path home;
    private final Store store;
    private final Keyspace meta;
    private final Set<String> used = new HashSet<>();
    private int users;

    private SharedStore(Path base, Path home, Map<String, Object> configs) {
        this.base = base;
        this.home = home;
        Options options = new Options();
        configs.forEach((name, value) -> {
            boolean isOption = name.startsWith(PREFIX) && !name.equals(UNCOMMITTED_BYTES_MAX);
            if (isOption && value != null) {
                options.set(name.substring(PREFIX.length()), value.toString());
            }
        });
        this.store = Gabion.open(home, options);
        this.meta = store.keyspace("streams");
    }

    /** The shared store for a task's directory; it is open until the last user's release. */
    static SharedStore acquire(File stateDir, TaskId task, Map<String, Object> configs) {
        Path directory = stateDir.toPath().toAbsolutePath().normalize();
        String name = directory.getFileName().toString();
        boolean isOfTask = name.equals("global") || name.equals(task.toString());
        // A directory that is not Kafka's own has no neighbours to share with.
        Path base = isOfTask ? directory.getParent() : directory;
        Path home = base.resolve(DIRECTORY);
        synchronized (OPEN) {
            SharedStore shared = OPEN.get(home);
            try {
                if (shared == null) {
                    Files.createDirectories(base);
                    shared = new SharedStore(base, home, configs);
                    OPEN.put(home, shared);
                }
            } catch (GabionException | IOException failure) {
                throw new ProcessorStateException("Error opening the store in " + home, failure);
            }
            shared.users++;
            return shared;
        }
    }

    /** Ends a use. */
    void release(String keyspace) {
        synchronized (OPEN) {
            used.remove(keyspace);
            if (--users == 0) {
                OPEN.remove(home);
                store.close();
            }
        }
    }

    Store store() {
        return store;
    }

    Keyspace meta() {
        return meta;
    }

    /**
     * The keyspace of a state store, if it has one. What was left by a store that has lost its
     * marker, this one or another, is dropped.
     */
    Keyspace find(File stateDir, String name) {
        synchronized (OPEN) {
            sweep();
            byte[] known = meta.get(placeKey(stateDir, name));
            if (known == null) {
                return null;
            }
            String keyspace = new String(known, UTF_8);
            used.add(keyspace);
            return store.existingKeyspace(keyspace);
        }
    }

    /** A new keyspace for a state store, whose first batch gets what makes it known. */
    Keyspace add(File stateDir, String name, WriteBatch batch) {
        synchronized (OPEN) {
            Keyspace keyspace = store.keyspace(UUID.randomUUID().toString());
            used.add(keyspace.name());
            batch.put(meta, placeKey(stateDir, name), keyspace.name().getBytes(UTF_8));
            return keyspace;
        }
    }

    /** Marks a keyspace as that of a state store, once its first batch is written. */
    void mark(File stateDir, String name, Keyspace keyspace) {
        Path marker = marker(stateDir.toPath(), name);
        Path made = marker.resolveSibling(marker.getFileName() + ".new");
        try {
            Files.createDirectories(stateDir.toPath());
            Files.write(made, keyspace.name().getBytes(UTF_8));
            Files.move(made, marker, StandardCopyOption.ATOMIC_MOVE);
        } catch (IOException failure) {
            throw new ProcessorStateException("Error writing " + marker, failure);
        }
    }

    private static Path marker(Path directory, String name) {
        return directory.resolve(name + ".gabion");
    }

    private byte[] placeKey(File stateDir, String name) {
        Path directory = stateDir.toPath().toAbsolutePath().normalize();
        return ("s" + base.relativize(directory) + "/" + name).getBytes(UTF_8);
    }

    /** The key in which a keyspace keeps something beside its pairs. */
    static byte[] metaKey(Keyspace keyspace, String kind) {
        return ("m" + keyspace.name() + "/" + kind).getBytes(UTF_8);
    }

    /** Drops the keyspaces of state stores whose marker is gone or names another one. */
    private void sweep() {
        List<Pair> gone = new ArrayList<>();
        Set<String> kept = new HashSet<>();
        try (PairIterator places = meta.iterator(KeyRange.prefix("s".getBytes(UTF_8)))) {
            while (places.hasNext()) {
                Pair place = places.next();
                String path = new String(place.key(), UTF_8).substring(1);
                int end = path.lastIndexOf('/');
                Path marker = marker(base.resolve(path.substring(0, end)), path.substring(end + 1));
                String keyspace = new String(place.value(), UTF_8);
                if (used.contains(keyspace) || keyspace.equals(read(marker))) {
                    kept.add(keyspace);
                } else {
                    gone.add(place);
                }
            }
        }
        for (Pair place : gone) {
            String keyspace = new String(place.value(), UTF_8);
            drop(keyspace);
            byte[] prefix = ("m" + keyspace + "/").getBytes(UTF_8);
            store.write(new WriteBatch()
                    .delete(meta, place.key())
                    .deleteRange(meta, KeyRange.prefix(prefix)));
        }
        // Those whose first batch was never written.
        for (String keyspace : store.keyspaceNames()) {
            boolean isOurs = keyspace.length() == UUID.randomUUID().toString().length();
            if (isOurs && !kept.contains(keyspace) && !used.contains(keyspace)) {
                drop(keyspace);
            }
        }
    }

    private void drop(String keyspace) {
        try {
            store.dropKeyspace(keyspace);
        } catch (NoSuchKeyspaceException gone) {
            // A crash came between this and the next step, the last time.
        }
    }

    private static String read(Path marker) {
        try {
            return Files.exists(marker) ? new String(Files.readAllBytes(marker), UTF_8) : null;
        } catch (IOException failure) {
            throw new ProcessorStateException("Error reading " + marker, failure);
        }
    }
}
