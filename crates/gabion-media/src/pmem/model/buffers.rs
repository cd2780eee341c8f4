//! The medium's own buffers: writes wait in one to be combined, lines read stay in the other.

/// A line of the media of which some cache lines wait to be written.
struct Combined {
    line: u64,
    /// One bit for each cache line in it.
    present: u64,
    /// Whether the rest of the line is at hand, so that the media need not be read for it.
    is_complete: bool,
    used: u64,
}

/// A line of the media that is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineWrite {
    pub(super) line: u64,
    /// Whether the media must be read first, as not all of the line was written.
    pub(super) needs_read: bool,
}

/// The write-combining buffer: the least recently written line leaves.
pub(super) struct WriteCombiningBuffer {
    entries: Vec<Combined>,
    capacity: usize,
    whole: u64,
    clock: u64,
}

impl WriteCombiningBuffer {
    /// A buffer of `capacity` lines of the media of `parts` cache lines each.
    pub(super) fn new(capacity: usize, parts: u64) -> WriteCombiningBuffer {
        WriteCombiningBuffer {
            entries: Vec::with_capacity(capacity),
            capacity,
            whole: u64::MAX >> (64 - parts.clamp(1, 64)),
            clock: 0,
        }
    }

    /// Whether cache line `part` of a line of the media waits here.
    pub(super) fn holds(&self, line: u64, part: u64) -> bool {
        self.find(line)
            .is_some_and(|entry| entry.is_complete || entry.present & (1 << part) != 0)
    }

    /// Lines of the media that wait here.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    fn find(&self, line: u64) -> Option<&Combined> {
        self.entries.iter().find(|entry| entry.line == line)
    }

    /// Takes cache line `part` of a line of the media, and says what has to leave for it.
    /// `is_read` says whether the line was read lately and its rest is known.
    pub(super) fn take(&mut self, line: u64, part: u64, is_read: bool) -> Option<LineWrite> {
        self.clock += 1;
        let clock = self.clock;
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.line == line) {
            entry.present |= 1 << part;
            entry.used = clock;
            return None;
        }
        let new = Combined {
            line,
            present: 1 << part,
            is_complete: is_read,
            used: clock,
        };
        if self.capacity == 0 {
            return Some(self.written(&new));
        }
        let left = (self.entries.len() == self.capacity).then(|| {
            let oldest = (0..self.entries.len()).min_by_key(|&index| self.entries[index].used);
            self.entries.swap_remove(oldest.unwrap_or(0))
        });
        self.entries.push(new);
        left.map(|entry| self.written(&entry))
    }

    fn written(&self, entry: &Combined) -> LineWrite {
        LineWrite {
            line: entry.line,
            needs_read: !entry.is_complete && entry.present != self.whole,
        }
    }

    /// Empties the buffer, the oldest line first.
    pub(super) fn drain(&mut self) -> Vec<LineWrite> {
        self.entries.sort_by_key(|entry| entry.used);
        let entries = std::mem::take(&mut self.entries);
        entries.iter().map(|entry| self.written(entry)).collect()
    }
}

/// The read buffer: first in, first out.
pub(super) struct ReadBuffer {
    lines: std::collections::VecDeque<u64>,
    capacity: usize,
}

impl ReadBuffer {
    pub(super) fn new(capacity: usize) -> ReadBuffer {
        ReadBuffer {
            lines: std::collections::VecDeque::with_capacity(capacity),
            capacity,
        }
    }

    pub(super) fn holds(&self, line: u64) -> bool {
        self.lines.contains(&line)
    }

    /// Takes a line that was read from the media.
    pub(super) fn take(&mut self, line: u64) {
        if self.capacity == 0 || self.holds(line) {
            return;
        }
        if self.lines.len() == self.capacity {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_to_one_line_are_combined_until_it_leaves() {
        let mut buffer = WriteCombiningBuffer::new(2, 4);
        for part in 0..4 {
            assert_eq!(buffer.take(10, part, false), None);
        }
        assert_eq!(buffer.take(11, 0, false), None);
        assert_eq!(buffer.take(10, 1, false), None, "line 11 is older now");
        let partial = LineWrite {
            line: 11,
            needs_read: true,
        };
        assert_eq!(buffer.take(12, 3, true), Some(partial));
        assert!(buffer.holds(12, 0), "its rest was read before");
        assert!(!buffer.holds(11, 0));
        let whole = |line| LineWrite {
            line,
            needs_read: false,
        };
        assert_eq!(buffer.drain(), [whole(10), whole(12)]);
        assert!(buffer.drain().is_empty());
    }

    #[test]
    fn without_a_buffer_each_line_is_written_at_once() {
        let mut buffer = WriteCombiningBuffer::new(0, 1);
        let written = LineWrite {
            line: 5,
            needs_read: false,
        };
        assert_eq!(buffer.take(5, 0, false), Some(written));
        assert_eq!(buffer.take(5, 0, false), Some(written));
    }

    #[test]
    fn the_read_buffer_forgets_its_oldest_line() {
        let mut buffer = ReadBuffer::new(2);
        for line in [1, 2, 1, 3] {
            buffer.take(line);
        }
        assert!(!buffer.holds(1) && buffer.holds(2) && buffer.holds(3));
        let mut none = ReadBuffer::new(0);
        none.take(1);
        assert!(!none.holds(1));
    }
}
