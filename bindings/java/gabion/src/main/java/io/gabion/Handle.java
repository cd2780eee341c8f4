package io.gabion;

import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.lang.ref.Cleaner;

/**
 * Something that is open until it is closed. What is forgotten instead is closed when it is
 * collected, with a warning to the logger {@code io.gabion}.
 */
abstract class Handle implements AutoCloseable {
    private static final Logger LOGGER = System.getLogger("io.gabion");
    private static final Cleaner CLEANER = Cleaner.create();

    /** Set to true, warnings of leaks tell where the object was made. */
    private static final boolean TRACES = Boolean.getBoolean("gabion.leaks");

    final long number;
    private final Release release;
    private final Cleaner.Cleanable cleanable;

    Handle(long number, String what) {
        this.number = number;
        this.release = new Release(number, what);
        this.cleanable = CLEANER.register(this, release);
    }

    /** Whether {@link #close} was called. */
    public final boolean isClosed() {
        return release.isClosed;
    }

    /** Closes it. Does nothing if it is closed; calls of other threads that are under way end. */
    @Override
    public void close() {
        release.isClosed = true;
        cleanable.clean();
    }

    /** Marks it as closed by its owner, before the end of what is under way. */
    final void closing() {
        release.isClosed = true;
    }

    /** Frees what is behind it. Knows nothing of the handle, which would live as long otherwise. */
    private static final class Release implements Runnable {
        private final long number;
        private final String what;
        private final Throwable made;
        private volatile boolean isClosed;

        Release(long number, String what) {
            this.number = number;
            this.what = what;
            this.made = TRACES ? new Throwable("made here") : null;
        }

        @Override
        public void run() {
            if (!isClosed) {
                String remedy = made == null ? "; -Dgabion.leaks=true tells where it was made" : "";
                LOGGER.log(Level.WARNING, what + " was not closed" + remedy, made);
            }
            Native.free(number);
        }
    }
}
