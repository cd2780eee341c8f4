package io.gabion.kafka;

import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.internals.SessionKeySchema;

/** A session store. Its keys end with the end and the start of the session. */
final class SessionBytesStore extends SegmentedStore implements SessionStore<Bytes, byte[]> {
    SessionBytesStore(String name, long retention) {
        super(name, retention, new SessionKeySchema());
    }

    /** Segments are by the end of a session, which may be long after its start. */
    @Override
    long latestSegmentTime(long to) {
        return Long.MAX_VALUE;
    }

    @Override
    boolean isWithin(byte[] stored, Bytes from, Bytes to, long timeFrom, long timeTo) {
        Windowed<Bytes> session = SessionKeySchema.from(Bytes.wrap(stored));
        return session.window().end() >= timeFrom && session.window().start() <= timeTo
                && (from == null || session.key().compareTo(from) >= 0)
                && (to == null || session.key().compareTo(to) <= 0);
    }

    @Override
    public void put(Windowed<Bytes> session, byte[] aggregate) {
        write(SessionKeySchema.toBinary(session), aggregate);
    }

    @Override
    public void remove(Windowed<Bytes> session) {
        write(SessionKeySchema.toBinary(session), null);
    }

    @Override
    public byte[] fetchSession(Bytes key, long start, long end) {
        return read(SessionKeySchema.toBinary(key, start, end));
    }

    /**
     * The sessions that end within a range of times, whatever their keys. Those that are expired
     * are among them until they are removed: Kafka asks for what has just ended.
     */
    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(
            long earliestEnd, long latestEnd) {
        return sessions(scanSegments(earliestEnd, latestEnd, stored -> {
            long end = SessionKeySchema.from(Bytes.wrap(stored)).window().end();
            return end >= earliestEnd && end <= latestEnd;
        }));
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(
            Bytes key, long earliestEnd, long latestStart) {
        return sessions(fetch(key, earliestEnd, latestStart, false));
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFindSessions(
            Bytes key, long earliestEnd, long latestStart) {
        return sessions(fetch(key, earliestEnd, latestStart, true));
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(
            Bytes keyFrom, Bytes keyTo, long earliestEnd, long latestStart) {
        return sessions(fetch(keyFrom, keyTo, earliestEnd, latestStart, false));
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFindSessions(
            Bytes keyFrom, Bytes keyTo, long earliestEnd, long latestStart) {
        return sessions(fetch(keyFrom, keyTo, earliestEnd, latestStart, true));
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes key) {
        return findSessions(key, 0, Long.MAX_VALUE);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes key) {
        return backwardFindSessions(key, 0, Long.MAX_VALUE);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes keyFrom, Bytes keyTo) {
        return findSessions(keyFrom, keyTo, 0, Long.MAX_VALUE);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes keyFrom, Bytes keyTo) {
        return backwardFindSessions(keyFrom, keyTo, 0, Long.MAX_VALUE);
    }

    private static KeyValueIterator<Windowed<Bytes>, byte[]> sessions(
            KeyValueIterator<Bytes, byte[]> pairs) {
        return new MappedIterator<>(pairs, SessionKeySchema::from);
    }
}
