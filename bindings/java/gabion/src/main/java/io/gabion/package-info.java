/**
 * Gabion, a key-value store on disk that survives crashes.
 *
 * <p>{@link io.gabion.Gabion#open} opens a {@link io.gabion.Store}; its {@link io.gabion.Keyspace}s
 * hold the pairs. What was closed throws a {@link io.gabion.ClosedException} when it is used, from
 * whichever thread, and never ends the VM.
 */
package io.gabion;
