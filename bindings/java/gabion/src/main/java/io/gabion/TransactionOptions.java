package io.gabion;

import java.util.Locale;

/** What a transaction is begun with. */
public final class TransactionOptions extends Settings<TransactionOptions> {
    /** The defaults. */
    public TransactionOptions() {}

    /** What it sees of others: {@link Isolation#SERIALIZABLE} unless it is set. */
    public TransactionOptions isolation(Isolation isolation) {
        return set("isolation", isolation.name().toLowerCase(Locale.ROOT));
    }

    /** How often {@link Store#transact} tries: 100 times unless it is set. */
    public TransactionOptions attemptsMax(int attempts) {
        return set("attempts_max", Integer.toString(attempts));
    }
}
