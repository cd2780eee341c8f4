package io.gabion;

import java.time.Duration;

/** What a keyspace is made with. */
public final class KeyspaceOptions extends Settings<KeyspaceOptions> {
    /** The defaults. */
    public KeyspaceOptions() {}

    /**
     * What merges mean: {@code add_i64}, {@code add_u64}, {@code max_bytes}, {@code min_bytes},
     * {@code bit_or}, or {@code append:} with a separator behind it. Numbers are little-endian.
     */
    public KeyspaceOptions merge(String operator) {
        return set("merge", operator);
    }

    /** After how long what is put expires, unless the put says something else. */
    public KeyspaceOptions defaultExpiry(Duration after) {
        return set("default_expiry", after);
    }
}
