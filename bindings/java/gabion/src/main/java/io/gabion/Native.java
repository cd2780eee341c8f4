package io.gabion;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Locale;

/**
 * The functions of the native library. Numbers of type long stand for objects that are open there;
 * an object that is closed, also by another thread during a call, is an exception and never a
 * crash. A view is a snapshot or a transaction, or 0 for the store as it is.
 */
final class Native {
    /** The version of these functions, which must be that of the library. */
    private static final int ABI_VERSION = 1;

    /** Why the library cannot be used; null if it can. */
    private static final String FAILURE = load();

    private Native() {}

    /**
     * Refuses to go on without the library.
     *
     * @throws UnsatisfiedLinkError with the reason and the remedy
     */
    static void require() {
        if (FAILURE != null) {
            throw new UnsatisfiedLinkError(FAILURE);
        }
    }

    /** The name of this platform: the folder of its library in the jar. */
    static String platform() {
        String system = System.getProperty("os.name").toLowerCase(Locale.ROOT);
        String machine = System.getProperty("os.arch").toLowerCase(Locale.ROOT);
        return (system.startsWith("mac") ? "macos" : system)
                + "-"
                + (machine.equals("amd64") ? "x86_64" : machine);
    }

    private static String load() {
        String given = System.getProperty("gabion.library");
        try {
            if (given != null) {
                System.load(Path.of(given).toAbsolutePath().toString());
            } else {
                String missing = loadFromJar();
                if (missing != null) {
                    return missing;
                }
            }
            int version = abi();
            return version == ABI_VERSION
                    ? null
                    : "the native library of Gabion has version " + version + ", and these classes"
                            + " need " + ABI_VERSION + ": use the two of one release";
        } catch (IOException | LinkageError failure) {
            return "the native library of Gabion cannot be loaded: " + failure.getMessage()
                    + "; where programs must not lie in " + System.getProperty("java.io.tmpdir")
                    + ", set java.io.tmpdir to another directory, or put the library somewhere and"
                    + " name it by -Dgabion.library";
        }
    }

    private static String loadFromJar() throws IOException {
        String file = System.mapLibraryName("gabion_jni");
        String resource = "/io/gabion/native/" + platform() + "/" + file;
        try (InputStream library = Native.class.getResourceAsStream(resource)) {
            if (library == null) {
                return "Gabion has no native library for " + platform() + " in this jar: build the"
                        + " jar on such a machine, or name a library by -Dgabion.library";
            }
            Path copy = Files.createTempFile("gabion", file);
            try {
                Files.copy(library, copy, StandardCopyOption.REPLACE_EXISTING);
                System.load(copy.toString());
            } finally {
                // What is loaded stays where the system has mapped it.
                Files.deleteIfExists(copy);
            }
            return null;
        }
    }

    private static native int abi();

    /** The names of all codes, with commas between them. */
    static native String codes();

    /** The names of all options, with commas between them. */
    static native String options();

    static native long open(String path, byte[] settings);

    static native void destroy(String path);

    static native void close(long store);

    /** Forgets anything; calls that are under way go on. */
    static native void free(long number);

    /** The default keyspace where name is null, only one that is there where settings is null. */
    static native long keyspace(long store, String name, byte[] settings);

    static native byte[] keyspaceNames(long store);

    static native void dropKeyspace(long store, String name);

    static native void flush(long store);

    static native void persist(long store);

    static native void checkpoint(long store, String path);

    static native String stats(long store);

    static native long snapshot(long store);

    static native byte[] get(long view, long keyspace, byte[] key);

    /** The length of the value, which is copied if there is room; -1 for none. */
    static native int getBuffer(
            long view, long keyspace, ByteBuffer key, int keyAt, int keyLength,
            ByteBuffer value, int valueAt, int room);

    static native boolean contains(long view, long keyspace, byte[] key);

    /** The values of packed keys: each a length, -1 for none, and bytes. */
    static native byte[] multiGet(long view, long keyspace, byte[] keys);

    /** In milliseconds since 1970; -1 for a key that does not expire or is not there. */
    static native long expiresAt(long view, long keyspace, byte[] key);

    static native void put(long transaction, long keyspace, byte[] key, byte[] value);

    static native void putBuffer(
            long transaction, long keyspace, ByteBuffer key, int keyAt, int keyLength,
            ByteBuffer value, int valueAt, int valueLength);

    static native void putExpiring(
            long transaction, long keyspace, byte[] key, byte[] value, long millis,
            boolean isAbsolute);

    static native void merge(long transaction, long keyspace, byte[] key, byte[] operand);

    static native void delete(long transaction, long keyspace, byte[] key);

    static native void deleteRange(long transaction, long keyspace, byte[] lower, byte[] upper);

    static native boolean compareAndSwap(
            long keyspace, byte[] key, byte[] expected, byte[] value);

    /** Writes the first bytes of a batch at a durability; null for that of the store. */
    static native void write(long store, byte[] batch, int length, String durability);

    static native long begin(long store, byte[] settings);

    static native int attemptsMax(byte[] settings);

    static native byte[] getForUpdate(long transaction, long keyspace, byte[] key);

    static native long savepoint(long transaction);

    static native void rollbackTo(long transaction, long savepoint);

    static native void commit(long transaction, String durability);

    static native boolean rollback(long transaction);

    static native long pages(
            long view, long keyspace, byte[] lower, byte[] upper, boolean isReversed);

    /** A byte, 1 if the range ends with the page, and texts: key, value, key, value. */
    static native byte[] page(long pages, int count, int size);

    static native void seek(long pages, byte[] key);
}
