package io.gabion;

/** What a store is opened with. The commonest options have methods; {@link #set} knows all. */
public final class Options extends Settings<Options> {
    /** The defaults. */
    public Options() {}

    /** Whether a directory without a store gets a new one: true unless it is set. */
    public Options createIfMissing(boolean creates) {
        return set("create_if_missing", Boolean.toString(creates));
    }

    /** Whether to open the store read-only, as many processes may at the same time. */
    public Options readOnly(boolean isReadOnly) {
        return set("read_only", Boolean.toString(isReadOnly));
    }

    /** What writes survive once they return: {@link Durability#interval} of 100 ms by default. */
    public Options durability(Durability durability) {
        return set("durability", durability.toString());
    }

    /** The ceiling of the store's memory, in bytes: by default after the machine. */
    public Options memoryBytesMax(long bytes) {
        return set("memory_bytes_max", Long.toString(bytes));
    }
}
