package io.gabion;

/** What transactions see of each other. */
public enum Isolation {
    /** As if one ran after the other: what a transaction read must be as it was when it commits. */
    SERIALIZABLE,
    /** All reads are of one moment; only what two of them write must not meet. */
    SNAPSHOT
}
