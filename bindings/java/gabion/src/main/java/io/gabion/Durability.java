package io.gabion;

import java.time.Duration;

/** What a write survives once it has returned. The death of the process: any does. */
public final class Durability {
    /** The loss of power, too. */
    public static final Durability SYNC = new Durability("sync");

    /** Nothing is said of power. */
    public static final Durability BUFFERED = new Durability("buffered");

    private final String word;

    private Durability(String word) {
        this.word = word;
    }

    /** The loss of power, too, but for the writes of the last moments, up to so long. */
    public static Durability interval(Duration atMost) {
        return new Durability("interval:" + atMost.toMillis());
    }

    @Override
    public String toString() {
        return word;
    }
}
