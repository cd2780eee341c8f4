//! Writes a table: blocks as they fill, the other parts at the end.

use gabion_media::Appender;

use super::block_builder::BlockBuilder;
use super::block_layout::BLOCK_BYTES_MAX;
use super::codec::BlockCompressor;
use super::filter::BloomFilter;
use super::index::BlockIndexBuilder;
use super::layout::{Footer, append_trailer, append_trailer_of, is_same};
use super::properties::TableProperties;
use super::{TableMeta, TableOptions};
use crate::engine::expiries::ExpirySample;
use crate::error::{Error, Result};
use crate::expiry::moment_of;
use crate::types::{Kind, Seq, hash_key};

/// Bytes that are collected before the medium is asked to append them: an append costs about 2 us,
/// so 256 KiB make it vanish and still fit a second-level cache.
const BUFFER_BYTES: usize = 256 << 10;

/// Writes the entries of one table in order.
#[derive(Debug)]
pub(crate) struct TableWriter {
    appender: Appender,
    file: u64,
    block_bytes: usize,
    checks_order: bool,
    /// What is not yet appended; it begins at `appended` of the file.
    buffer: Vec<u8>,
    appended: u64,
    block: BlockBuilder,
    packer: BlockCompressor,
    index: BlockIndexBuilder,
    /// Hashes of the distinct keys.
    hashes: Vec<u64>,
    last_hash: u64,
    properties: TableProperties,
    expiries: ExpirySample,
}

impl TableWriter {
    /// Starts table number `file` in the empty file of `appender`.
    pub(crate) fn new(appender: Appender, file: u64, options: &TableOptions) -> TableWriter {
        debug_assert_eq!(appender.len(), 0);
        TableWriter {
            appender,
            file,
            block_bytes: options.block_bytes.min(BLOCK_BYTES_MAX),
            checks_order: options.checks_order,
            buffer: Vec::with_capacity(BUFFER_BYTES + BLOCK_BYTES_MAX),
            appended: 0,
            block: BlockBuilder::default(),
            packer: BlockCompressor::new(options.compression),
            index: BlockIndexBuilder::default(),
            hashes: Vec::new(),
            last_hash: 0,
            properties: TableProperties::empty(u64::from(options.filter_bits_per_key)),
            expiries: ExpirySample::default(),
        }
    }

    /// Adds an entry. Keys come in ascending order, the versions of a key in descending order of
    /// their sequence numbers; range deletes are fragments of a set. A key is shorter than 64 KiB,
    /// a value shorter than 4 GiB.
    pub(crate) fn add(&mut self, key: &[u8], seq: Seq, kind: Kind, value: &[u8]) -> Result<()> {
        let repeats = self.properties.entries > 0 && is_same(self.block.last_key(), key);
        if self.checks_order {
            self.check_order(key, seq, repeats)?;
        }
        debug_assert!(
            self.properties.entries == 0 || repeats || self.block.last_key() < key,
            "keys must ascend"
        );
        if !repeats {
            self.last_hash = hash_key(key);
            self.hashes.push(self.last_hash);
        }
        let [tag, ..] = self.last_hash.to_le_bytes();
        let limit = self.block_bytes;
        let keyed = (key, tag, repeats);
        if !self.block.push_within(limit, keyed, seq, kind, value) {
            self.cut(Some(key))?;
            let keyed = (key, tag, false);
            let added = self.block.push_within(limit, keyed, seq, kind, value);
            debug_assert!(added, "an empty block takes any entry");
        }
        self.note(key, seq, kind, value);
        Ok(())
    }

    /// An error if the entry does not come behind the last one.
    fn check_order(&self, key: &[u8], seq: Seq, repeats: bool) -> Result<()> {
        let ascends = match self.block.last_seq() {
            None => true,
            Some(last) if repeats => seq < last,
            Some(_) => self.block.last_key() < key,
        };
        match ascends {
            true => Ok(()),
            false => Err(Error::Corruption {
                file: self.appender.path().to_path_buf(),
                offset: self.bytes_written(),
                what: "an entry to be written comes out of order".to_owned(),
            }),
        }
    }

    #[inline]
    fn note(&mut self, key: &[u8], seq: Seq, kind: Kind, value: &[u8]) {
        let properties = &mut self.properties;
        if properties.entries == 0 {
            properties.smallest.extend_from_slice(key);
        }
        properties.entries += 1;
        properties.tombstones += u64::from(kind.is_tombstone());
        properties.merges += u64::from(kind == Kind::Merge);
        if kind == Kind::DeleteRange {
            properties.deletes.note(key, value, seq);
        }
        if kind == Kind::PutExpiring {
            self.expiries.add(moment_of(value));
        }
        properties.key_bytes += key.len() as u64;
        properties.value_bytes += value.len() as u64;
        properties.min_seq = properties.min_seq.min(seq);
        properties.max_seq = properties.max_seq.max(seq);
    }

    /// Entries added so far.
    pub(crate) fn entries(&self) -> u64 {
        self.properties.entries
    }

    /// Bytes of the blocks finished so far: what the file has reached, without the block in work.
    pub(crate) fn bytes_written(&self) -> u64 {
        self.appended + self.buffer.len() as u64
    }

    /// Finishes the block in work; `next` is the key that follows it.
    fn cut(&mut self, next: Option<&[u8]>) -> Result<()> {
        let offset = self.bytes_written();
        let last = self.block.last_key();
        if next.is_none() {
            self.properties.largest.extend_from_slice(last);
        }
        let start = self.buffer.len();
        self.block.encode(&mut self.buffer);
        let encoding = self.packer.pack(&mut self.buffer, start);
        self.properties.packed.count(encoding);
        append_trailer_of(encoding, &mut self.buffer, start, self.file, offset);
        self.index
            .add(last, next, (self.buffer.len() - start) as u64);
        self.block.clear();
        if self.buffer.len() >= BUFFER_BYTES {
            self.append_buffer()?;
        }
        Ok(())
    }

    fn append_buffer(&mut self) -> Result<()> {
        self.appender.append(&self.buffer)?;
        self.appended += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Ends the section that begins at `start` of the buffer and returns its length.
    fn end_section(&mut self, start: usize) -> u64 {
        let offset = self.appended + start as u64;
        append_trailer(&mut self.buffer, start, self.file, offset);
        (self.buffer.len() - start) as u64
    }

    /// Writes what is left and syncs the file. Its name is durable only after the caller synced
    /// the directory.
    ///
    /// # Panics
    /// When nothing was added: there is no table without entries.
    pub(crate) fn finish(mut self) -> Result<TableMeta> {
        assert!(self.entries() > 0, "a table has at least one entry");
        self.cut(None)?;
        let data_bytes = self.bytes_written();
        for hash in &self.hashes {
            self.properties.sketch.add(*hash);
        }
        self.properties.expiries = self.expiries.expiries();
        let bits_per_key = u32::try_from(self.properties.filter_bits_per_key).unwrap_or(u32::MAX);

        let start = self.buffer.len();
        BloomFilter::build(&self.hashes, bits_per_key).encode(&mut self.buffer);
        let filter_bytes = self.end_section(start);
        let start = self.buffer.len();
        self.index.encode(&mut self.buffer);
        let index_bytes = self.end_section(start);
        let start = self.buffer.len();
        self.properties.encode(&mut self.buffer);
        let properties_bytes = self.end_section(start);

        let footer = Footer {
            features: self.properties.features(),
            file: self.file,
            data_bytes,
            filter_bytes,
            index_bytes,
            properties_bytes,
        };
        let footer_at = self.bytes_written();
        footer.encode(&mut self.buffer, footer_at);
        self.append_buffer()?;
        // DURABLE: every byte of the table; the name follows with the caller's directory sync.
        self.appender.sync()?;
        Ok(TableMeta::new(self.file, self.appended, &self.properties))
    }
}
