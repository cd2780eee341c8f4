package io.gabion;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;

/**
 * Options by name and value. Names are those of the fields in Rust, such as {@code
 * memory_bytes_max}; values are text: {@code 512MiB}, {@code 10s}, {@code true}. What is unknown or
 * cannot be read is told by the call that takes the options.
 *
 * @param <S> the options that these are
 */
public abstract class Settings<S extends Settings<S>> {
    private final Map<String, String> values = new LinkedHashMap<>();

    Settings() {}

    /** Sets an option. The last value of a name counts. */
    public final S set(String name, String value) {
        values.put(Objects.requireNonNull(name), Objects.requireNonNull(value));
        @SuppressWarnings("unchecked")
        S self = (S) this;
        return self;
    }

    /** The names and values that were set. */
    public final Map<String, String> values() {
        return Map.copyOf(values);
    }

    final S set(String name, Duration value) {
        return set(name, value.toMillis() + "ms");
    }

    final byte[] packed() {
        Packer packer = new Packer(128);
        values.forEach((name, value) -> packer
                .add(name.getBytes(StandardCharsets.UTF_8))
                .add(value.getBytes(StandardCharsets.UTF_8)));
        return packer.toBytes();
    }

    @Override
    public String toString() {
        return getClass().getSimpleName() + values;
    }
}
