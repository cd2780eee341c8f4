//! What WipDB does in the steps of an engine's journeys ([`SsdEngine`]).

use std::ops::DerefMut;
use std::sync::Arc;

use super::writepath::WipWriteHalf;
use super::{Wip, WipKeyspace, Write};
use crate::Result;
use crate::engine::ssd::SsdEngine;
use crate::expiry::{ReadPoint, StoredRecord};
use crate::log::{PendingLog, SegmentPurpose};
use crate::operands::OlderVersion;
use crate::types::{Seq, hash_key};

impl SsdEngine for Wip {
    type Keyspace = WipKeyspace;
    type WriteHalf = WipWriteHalf;

    const KEEPS_OPERANDS: bool = true;

    fn lock_write_half(&self) -> impl DerefMut<Target = WipWriteHalf> {
        self.leader.write()
    }

    fn next_seq(leader: &mut WipWriteHalf) -> Seq {
        leader.next_seq()
    }

    fn segment(leader: &WipWriteHalf) -> u64 {
        leader.segment()
    }

    fn append(&self, leader: &mut WipWriteHalf, write: Write<'_>) -> Result<Seq> {
        self.log_write(leader, write)
    }

    fn append_event(leader: &mut WipWriteHalf, payload: &[u8]) -> Result<()> {
        leader
            .append(&[payload], 0, SegmentPurpose::Deletes)
            .map(drop)
    }

    fn insert_group<'w>(
        &self,
        leader: &mut WipWriteHalf,
        writes: impl Iterator<Item = (Write<'w>, Seq)>,
        segment: u64,
        whole: bool,
    ) {
        self.insert_all(leader, writes, segment, whole);
    }

    #[inline]
    fn prefetch(&self, write: Write<'_>) -> u64 {
        // What a bucket has of the key is asked for once the leader is held.
        write.key_hash()
    }

    #[inline]
    fn admit(&self, bytes: u64) -> Result<()> {
        let relief_is_due = || self.relief_is_due();
        self.throttle.admit(bytes, &self.waits, relief_is_due)
    }

    #[inline]
    fn write_concurrently(&self, write: Write<'_>, hash: u64) -> Result<bool> {
        Wip::write_concurrently(self, write, hash)
    }

    fn is_newer(&self, keyspace: &WipKeyspace, key: &[u8], hash: u64, since: Seq) -> Result<bool> {
        Wip::is_newer(keyspace, key, hash, since)
    }

    fn newer_in(
        &self,
        keyspace: &WipKeyspace,
        range: (&[u8], Option<&[u8]>),
        since: Seq,
    ) -> Result<Option<Vec<u8>>> {
        Wip::newer_in(keyspace, range, since)
    }

    fn newest(&self, keyspace: &WipKeyspace, key: &[u8]) -> Result<Option<StoredRecord>> {
        self.find_record(keyspace, key, None)
    }

    fn older(&self, keyspace: &WipKeyspace, key: &[u8]) -> Result<OlderVersion> {
        let router = keyspace.router.load();
        let state = router.route(key).state.load();
        Wip::older(self, keyspace, &state, key, hash_key(key))
    }

    fn gain_room(&self) -> bool {
        Wip::gain_room(self)
    }

    #[inline]
    fn run_inline(&self) {
        Wip::run_inline(self);
    }

    fn start_workers(self: &Arc<Wip>) -> Result<()> {
        Wip::start_workers(self)
    }

    fn maintain_log(&self) {
        Wip::maintain_log(self);
    }

    fn end_snapshot(&self, point: ReadPoint) {
        Wip::end_snapshot(self, point);
    }

    fn end_opening(&self, pending: &mut PendingLog) -> Result<()> {
        Wip::end_opening(self, pending)
    }

    fn close_log(&self) -> Result<()> {
        Wip::close_log(self)
    }
}
