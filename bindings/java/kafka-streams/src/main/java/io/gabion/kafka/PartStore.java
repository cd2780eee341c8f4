package io.gabion.kafka;

import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.state.internals.StoreQueryUtils;

/** What all state stores on a {@link StorePart} have in common. */
abstract class PartStore implements StateStore {
    final StorePart part;

    PartStore(String name) {
        this.part = new StorePart(name);
    }

    @Override
    public void init(StateStoreContext context, StateStore root) {
        part.init(context, root, this::restore);
    }

    /** Applies a record of the changelog. */
    abstract void restore(ConsumerRecord<byte[], byte[]> record);

    @Override
    public final String name() {
        return part.name();
    }

    @Override
    public final boolean persistent() {
        return true;
    }

    @Override
    public final boolean isOpen() {
        return part.isOpen();
    }

    @Override
    public final void commit(Map<TopicPartition, Long> offsets) {
        part.commit(offsets);
    }

    @Override
    public final Long committedOffset(TopicPartition partition) {
        return part.committedOffset(partition);
    }

    @Override
    @Deprecated
    public final boolean managesOffsets() {
        return true;
    }

    @Override
    public final Position getPosition() {
        return part.position();
    }

    @Override
    public final <R> QueryResult<R> query(
            Query<R> query, PositionBound bound, QueryConfig config) {
        return StoreQueryUtils.handleBasicQueries(
                query, bound, config, this, part.position(), part.context());
    }

    @Override
    public void close() {
        part.close();
    }
}
