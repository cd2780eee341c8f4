//! Statistics of a space.

use gabion_media::WriteCounts;

use super::Inner;
use super::read_state::ReadState;
use super::writer::Writer;

/// Figures of a space. Counts begin when it is opened.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SpaceStats {
    /// Bytes in the address space, holes included.
    pub len: u64,
    /// Bytes in it that take space on the medium.
    pub live_bytes: u64,
    /// Bytes that it may hold without holes.
    pub live_bytes_max: u64,
    /// Extents, holes included.
    pub extents: u64,
    /// Segments of the data file.
    pub segments: u32,
    /// Those of them that are free.
    pub segments_free: u32,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Bytes that segments take on the medium: free ones may have given theirs back.
    pub data_file_bytes: u64,
    /// Nodes of the tree.
    pub tree_nodes: u64,
    /// Those of them that are not in memory.
    pub tree_nodes_absent: u64,
    /// Those that changed since the tree was saved, the leaves of them.
    pub tree_leaves_dirty: u64,
    /// Memory of the tree in bytes, of what it has had in memory at the same time.
    pub tree_memory_bytes: u64,
    /// What that should be at most, see [`Options::index_bytes`](crate::Options::index_bytes).
    pub tree_memory_bytes_max: Option<u64>,
    /// Leaves of the tree that were read from the medium since the space was opened.
    pub tree_leaves_fetched: u64,
    /// Memory in bytes: that of the tree, of data that is not written yet, of checksums, and of
    /// what waits for a commit.
    pub memory_bytes: u64,
    /// Bytes of the tree file.
    pub tree_file_bytes: u64,
    /// Bytes in the log.
    pub log_bytes: u64,
    /// Bytes of log records that wait for a commit.
    pub pending_bytes: u64,
    /// Bytes that were inserted or written by the user.
    pub user_bytes: u64,
    /// Bytes that were written to the medium, by purpose.
    pub written: WriteCounts,
    /// Commits of the log.
    pub commits: u64,
    /// Times that the tree was saved.
    pub checkpoints: u64,
    /// Rounds of collection.
    pub collections: u64,
    /// Bytes that collections and defragmentations moved.
    pub moved_bytes: u64,
    /// Segments whose space was given back to the file system.
    pub segments_punched: u64,
    /// Operations that were repeated from the log when the space was opened.
    pub repeated_operations: u64,
    /// Why the space takes no more writes, if so.
    pub read_only: Option<String>,
}

impl SpaceStats {
    /// Bytes written to the medium per byte of the user, 0 as long as there is none.
    #[expect(clippy::cast_precision_loss, reason = "a ratio of two digits is meant")]
    pub fn write_amplification(&self) -> f64 {
        if self.user_bytes == 0 {
            return 0.0;
        }
        self.written.total_bytes() as f64 / self.user_bytes as f64
    }
}

/// Memory of a space in bytes.
fn memory_bytes(writer: &Writer, shared: &ReadState) -> u64 {
    let waiting = writer.pending.as_bytes().len() + writer.spare.capacity();
    shared.memory_bytes() + waiting as u64
}

impl Inner {
    pub(super) fn memory_bytes(&self) -> u64 {
        let writer = self.writer.lock();
        memory_bytes(&writer, &self.shared.share())
    }

    pub(super) fn room(&self) -> u64 {
        let segments = &self.writer.lock().segments;
        let free = segments.available().saturating_sub(segments.kept_free());
        let room = u64::from(free) * u64::from(self.sums.geometry.room());
        room.min(segments.live_max().saturating_sub(segments.live()))
    }

    pub(super) fn stats(&self) -> SpaceStats {
        let writer = self.writer.lock();
        let shared = self.shared.share();
        SpaceStats {
            len: shared.tree.len(),
            live_bytes: writer.segments.live(),
            live_bytes_max: writer.segments.live_max(),
            extents: shared.tree.extent_count(),
            segments: writer.segments.count(),
            segments_free: writer.segments.free_count(),
            segment_bytes: self.sums.geometry.segment_bytes(),
            data_file_bytes: u64::from(writer.segments.count() - writer.segments.punched_count())
                * self.sums.geometry.segment_bytes(),
            tree_nodes: shared.tree.node_count() as u64,
            tree_nodes_absent: shared.tree.absent_count() as u64,
            tree_leaves_dirty: shared.tree.dirty_count() as u64,
            tree_memory_bytes: shared.tree.memory_bytes() as u64,
            tree_memory_bytes_max: self.index_bytes(),
            tree_leaves_fetched: self.nodes.fetched(),
            memory_bytes: memory_bytes(&writer, &shared),
            tree_file_bytes: writer.tree_file.bytes(),
            log_bytes: writer.log.as_ref().map_or(0, |log| log.file.position()),
            pending_bytes: writer.pending.as_bytes().len() as u64,
            user_bytes: writer.totals.user_bytes,
            written: self.disk.counts(),
            commits: writer.totals.commits,
            checkpoints: writer.totals.checkpoints,
            collections: writer.totals.collections,
            moved_bytes: writer.totals.moved_bytes,
            segments_punched: writer.totals.punched,
            repeated_operations: self.repeated,
            read_only: writer.failure.clone(),
        }
    }
}
