//! What FlexDB does in the steps of an engine's journeys ([`SsdEngine`]).

use std::ops::DerefMut;
use std::sync::Arc;

use super::writepath::FlexWriteHalf;
use super::{Flex, FlexKeyspace, Write};
use crate::engine::ssd::SsdEngine;
use crate::expiry::{ReadPoint, StoredRecord};
use crate::log::{PendingLog, SegmentPurpose};
use crate::operands::OlderVersion;
use crate::types::Seq;
use crate::{Error, Result};

impl SsdEngine for Flex {
    type Keyspace = FlexKeyspace;
    type WriteHalf = FlexWriteHalf;

    // Repeating a merge into a space must change nothing (I3).
    const KEEPS_OPERANDS: bool = false;

    fn lock_write_half(&self) -> impl DerefMut<Target = FlexWriteHalf> {
        self.writer.lock()
    }

    fn next_seq(writer: &mut FlexWriteHalf) -> Seq {
        writer.next_seq
    }

    fn segment(writer: &FlexWriteHalf) -> u64 {
        writer.segment()
    }

    #[inline]
    fn append(&self, writer: &mut FlexWriteHalf, write: Write<'_>) -> Result<Seq> {
        self.log_write(writer, write)
    }

    fn append_event(writer: &mut FlexWriteHalf, payload: &[u8]) -> Result<()> {
        let log = writer.log.as_mut().ok_or(Error::Closed)?;
        log.append(&[payload], SegmentPurpose::Deletes).map(drop)
    }

    fn insert_group<'w>(
        &self,
        writer: &mut FlexWriteHalf,
        writes: impl Iterator<Item = (Write<'w>, Seq)>,
        _segment: u64,
        _whole: bool,
    ) {
        self.insert_all(writer, writes);
    }

    #[inline]
    fn prefetch(&self, write: Write<'_>) -> u64 {
        Flex::prefetch(self, write)
    }

    #[inline]
    fn admit(&self, _bytes: u64) -> Result<()> {
        Flex::admit(self)
    }

    #[inline]
    fn write_concurrently(&self, write: Write<'_>, hash: u64) -> Result<bool> {
        // What depends on reads is for whoever leads.
        if write.reads().is_some() || write.has_operands() {
            return Ok(false);
        }
        self.write_now(&mut self.writer.lock(), write, hash)?;
        Ok(true)
    }

    fn is_newer(&self, keyspace: &FlexKeyspace, key: &[u8], hash: u64, since: Seq) -> Result<bool> {
        Ok(Flex::is_newer(self, keyspace, key, hash, since))
    }

    fn newer_in(
        &self,
        keyspace: &FlexKeyspace,
        range: (&[u8], Option<&[u8]>),
        since: Seq,
    ) -> Result<Option<Vec<u8>>> {
        Ok(Flex::newer_in(self, keyspace, range, since))
    }

    fn newest(&self, keyspace: &FlexKeyspace, key: &[u8]) -> Result<Option<StoredRecord>> {
        self.find_record(keyspace, key, None)
    }

    fn older(&self, keyspace: &FlexKeyspace, key: &[u8]) -> Result<OlderVersion> {
        let record = self.find_record(keyspace, key, None)?;
        let seq = self.visible();
        Ok(record.map_or(OlderVersion::Nothing, |record| {
            OlderVersion::Record(seq, record)
        }))
    }

    fn gain_room(&self) -> bool {
        Flex::gain_room(self)
    }

    #[inline]
    fn run_inline(&self) {
        Flex::run_inline(self);
    }

    fn start_workers(self: &Arc<Flex>) -> Result<()> {
        Flex::start_workers(self)
    }

    fn maintain_log(&self) {
        Flex::maintain_log(self);
    }

    fn end_snapshot(&self, point: ReadPoint) {
        Flex::end_snapshot(self, point);
    }

    fn end_opening(&self, pending: &mut PendingLog) -> Result<()> {
        Flex::end_opening(self, pending)
    }

    fn close_log(&self) -> Result<()> {
        Flex::close_log(self)
    }

    fn release(&self) {
        self.close_spaces();
    }
}
