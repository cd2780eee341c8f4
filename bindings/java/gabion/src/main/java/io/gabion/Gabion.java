package io.gabion;

import java.nio.file.Path;
import java.util.List;

/** Opens stores. */
public final class Gabion {
    private Gabion() {}

    /** Opens the store in a directory, which is made if it is not there, with the defaults. */
    public static Store open(Path directory) {
        return open(directory, new Options());
    }

    /**
     * Opens the store in a directory.
     *
     * @throws LockedException if it is open elsewhere
     * @throws CorruptionException if what is there is not a store that this version can read
     * @throws UnsatisfiedLinkError if there is no native library for this platform
     */
    public static Store open(Path directory, Options options) {
        Native.require();
        return new Store(directory, options);
    }

    /** Removes the store in a directory. It must be closed. */
    public static void destroy(Path directory) {
        Native.require();
        Native.destroy(directory.toString());
    }

    /** The names of all options of stores, keyspaces and transactions. */
    public static List<String> optionNames() {
        Native.require();
        return List.of(Native.options().split(","));
    }
}
