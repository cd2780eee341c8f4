package io.gabion.kafka;

import java.util.Map;
import java.util.WeakHashMap;
import org.apache.kafka.streams.processor.internals.InternalProcessorContext;

/**
 * How often a task has committed, under exactly-once. Kafka tells state stores of such a commit
 * only at the end of a task. But after each one that succeeded it clears the mark that the task's
 * metadata are to be committed. So the mark is set with each write, and where it is found clear, a
 * commit came between. With the mark, a commit has the offsets of all partitions of the task.
 */
final class TaskCommits {
    private static final Map<InternalProcessorContext<?, ?>, TaskCommits> OF_CONTEXTS =
            new WeakHashMap<>();

    private long count;
    private boolean isMarked;

    private TaskCommits() {}

    /** The commits of the task of a context. All its stores share them. */
    static TaskCommits of(InternalProcessorContext<?, ?> context) {
        synchronized (OF_CONTEXTS) {
            return OF_CONTEXTS.computeIfAbsent(context, own -> new TaskCommits());
        }
    }

    /** How many there were, before a write that marks what follows as not committed. */
    synchronized long beforeWrite(InternalProcessorContext<?, ?> context) {
        count = count(context);
        context.processorMetadata().setNeedsCommit(true);
        isMarked = true;
        return count;
    }

    /** How many there were. */
    synchronized long count(InternalProcessorContext<?, ?> context) {
        boolean isClear = isMarked && !context.processorMetadata().needsCommit();
        return isClear ? count + 1 : count;
    }
}
