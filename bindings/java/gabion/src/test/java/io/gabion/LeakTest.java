package io.gabion;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class LeakTest {
    @TempDir Path directory;

    private static final class Kept extends Handler {
        final Queue<String> messages = new ConcurrentLinkedQueue<>();

        @Override
        public void publish(LogRecord record) {
            messages.add(record.getMessage());
        }

        @Override
        public void flush() {}

        @Override
        public void close() {}
    }

    private void forget() {
        Store store = Gabion.open(directory.resolve("store"));
        store.defaultKeyspace().put(new byte[1], new byte[1]);
        try (Snapshot closed = store.snapshot()) {
            closed.get(store.defaultKeyspace(), new byte[1]);
        }
    }

    /** A store that is forgotten is closed when it is collected, and the log says so. */
    @Test
    void aForgottenStoreIsClosedWithAWarning() {
        Logger logger = Logger.getLogger("io.gabion");
        Kept kept = new Kept();
        logger.addHandler(kept);
        logger.setUseParentHandlers(false);
        try {
            forget();
            while (kept.messages.isEmpty()) {
                System.gc();
                Thread.onSpinWait();
            }
            assertEquals(1, kept.messages.size());
            String message = kept.messages.peek();
            assertTrue(message.contains("store") && message.contains("was not closed"), message);
            // Freed right after the warning, by the thread that warned.
            while (true) {
                try (Store store = Gabion.open(directory.resolve("store"))) {
                    assertTrue(store.defaultKeyspace().contains(new byte[1]));
                    break;
                } catch (LockedException notYet) {
                    Thread.onSpinWait();
                }
            }
        } finally {
            logger.removeHandler(kept);
            logger.setUseParentHandlers(true);
        }
    }
}
