package io.gabion;

/**
 * What is done in a transaction. It may run more than once.
 *
 * @param <T> what it answers
 * @param <E> what it may throw, which rolls back
 */
@FunctionalInterface
public interface TransactionBody<T, E extends Exception> {
    /** Does it. The transaction is committed afterwards. */
    T run(Transaction transaction) throws E;
}
