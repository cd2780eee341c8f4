//! Traces of what is done to persistent memory, step by step.
//!
//! A watched medium reports each [`TraceEvent`] to its [`Watcher`], in the order in which the
//! stores become visible to other threads. The cost model counts them as they come; the crash
//! explorer keeps them in a [`Trace`] and derives from it what a power failure may leave.
//!
//! Units: offsets and lengths are bytes from the start of the medium. A cache line has
//! [`LINE`] bytes, and aligned words of [`WORD`] bytes reach the medium whole or not at all.

use std::fmt;
use std::panic::Location;

/// Bytes of a cache line: what a flush writes back.
pub const LINE: u64 = 64;

/// Bytes of a word, which a power failure never tears if it is aligned.
pub const WORD: u64 = 8;

/// The place in the source that did something to the medium. Primitives that report events are
/// `#[track_caller]`, so that this is their caller's place and names a flush or a fence in reports.
pub type CodeSite = &'static Location<'static>;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceStep<'a> {
    /// Bytes stored through the cache. Words of one store may reach the medium in any order.
    Store {
        /// Where the first byte goes.
        offset: u64,
        /// What is stored.
        bytes: &'a [u8],
    },
    /// Bytes stored past the cache: durable at the thread's next fence, in any order before it.
    NtStore {
        /// Where the first byte goes.
        offset: u64,
        /// What is stored.
        bytes: &'a [u8],
    },
    /// The write-back of the line that holds `offset`; certain at the thread's next fence.
    Flush {
        /// Any byte of the line.
        offset: u64,
    },
    /// A store fence: it ends the thread's flushes and stores past the cache.
    Fence,
    /// Bytes loaded.
    Load {
        /// Where the first byte lies.
        offset: u64,
        /// How many bytes.
        len: u64,
    },
    /// An operation of the structure begins on this thread.
    Begin {
        /// Its number in the history.
        op: u32,
    },
    /// The operation returns on this thread: from here on it must survive.
    End {
        /// Its number in the history.
        op: u32,
    },
}

/// A step with the thread and the place that did it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent<'a> {
    /// What was done.
    pub step: TraceStep<'a>,
    /// Where in the source.
    pub site: CodeSite,
    /// A number of the thread, unique within a trace.
    pub thread: u32,
}

/// Who is told of the events of a watched medium.
///
/// The medium calls `event` under a lock that it also holds for the step itself: stores are
/// reported just before they change the memory, loads just before they read it.
pub trait Watcher: Send + Sync {
    /// Takes note of an event.
    fn event(&self, event: TraceEvent<'_>);

    /// Called after each step, without the lock: here a watcher may let other threads go first.
    fn pause(&self) {}
}

/// The events of a run in their order, and what the medium held before it.
#[derive(Clone, Default)]
pub struct Trace {
    base: Vec<u8>,
    entries: Vec<Entry>,
    stored: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Entry {
    kind: Kind,
    thread: u32,
    site: CodeSite,
    /// Offset, or number of the operation.
    at: u64,
    len: u64,
    /// Where the stored bytes begin in `stored`.
    bytes_at: usize,
}

#[derive(Clone, Copy)]
enum Kind {
    Store,
    NtStore,
    Flush,
    Fence,
    Load,
    Begin,
    End,
}

impl Trace {
    /// An empty trace of a medium that durably holds `base`.
    pub fn new(base: Vec<u8>) -> Trace {
        Trace {
            base,
            ..Trace::default()
        }
    }

    /// What the medium held before the first event.
    pub fn base(&self) -> &[u8] {
        &self.base
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Appends an event.
    pub fn push(&mut self, event: TraceEvent<'_>) {
        let bytes_at = self.stored.len();
        let (kind, at, len) = match event.step {
            TraceStep::Store { offset, bytes } => (Kind::Store, offset, self.keep(bytes)),
            TraceStep::NtStore { offset, bytes } => (Kind::NtStore, offset, self.keep(bytes)),
            TraceStep::Flush { offset } => (Kind::Flush, offset, 0),
            TraceStep::Fence => (Kind::Fence, 0, 0),
            TraceStep::Load { offset, len } => (Kind::Load, offset, len),
            TraceStep::Begin { op } => (Kind::Begin, u64::from(op), 0),
            TraceStep::End { op } => (Kind::End, u64::from(op), 0),
        };
        self.entries.push(Entry {
            kind,
            thread: event.thread,
            site: event.site,
            at,
            len,
            bytes_at,
        });
    }

    fn keep(&mut self, bytes: &[u8]) -> u64 {
        self.stored.extend_from_slice(bytes);
        bytes.len() as u64
    }

    /// The event with number `index`, if there are so many.
    pub fn get(&self, index: usize) -> Option<TraceEvent<'_>> {
        self.entries.get(index).map(|entry| self.event(entry))
    }

    /// All events in their order.
    pub fn iter(&self) -> impl Iterator<Item = TraceEvent<'_>> {
        self.entries.iter().map(|entry| self.event(entry))
    }

    /// Forgets all events, and keeps their memory for others.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.stored.clear();
    }

    fn event(&self, entry: &Entry) -> TraceEvent<'_> {
        let offset = entry.at;
        let bytes = || {
            let len = usize::try_from(entry.len).unwrap_or(usize::MAX);
            &self.stored[entry.bytes_at..entry.bytes_at + len]
        };
        // Numbers of operations were made from 32 bits.
        let op = u32::try_from(entry.at).unwrap_or(u32::MAX);
        let step = match entry.kind {
            Kind::Store => TraceStep::Store {
                offset,
                bytes: bytes(),
            },
            Kind::NtStore => TraceStep::NtStore {
                offset,
                bytes: bytes(),
            },
            Kind::Flush => TraceStep::Flush { offset },
            Kind::Fence => TraceStep::Fence,
            Kind::Load => TraceStep::Load {
                offset,
                len: entry.len,
            },
            Kind::Begin => TraceStep::Begin { op },
            Kind::End => TraceStep::End { op },
        };
        TraceEvent {
            step,
            site: entry.site,
            thread: entry.thread,
        }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} bytes, then", self.base.len())?;
        for (index, event) in self.iter().enumerate() {
            writeln!(f, "{index:>6}  {event}")?;
        }
        Ok(())
    }
}

impl fmt::Display for TraceEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{} {}", self.thread, self.step)?;
        match self.step {
            TraceStep::Begin { .. } | TraceStep::End { .. } => Ok(()),
            _ => write!(f, "  {}:{}", self.site.file(), self.site.line()),
        }
    }
}

impl fmt::Display for TraceStep<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            TraceStep::Store { offset, bytes } => {
                write!(f, "store   {offset:#08x} {}", Bytes(bytes))
            }
            TraceStep::NtStore { offset, bytes } => {
                write!(f, "ntstore {offset:#08x} {}", Bytes(bytes))
            }
            TraceStep::Flush { offset } => write!(f, "flush   {:#08x}", offset / LINE * LINE),
            TraceStep::Fence => write!(f, "fence"),
            TraceStep::Load { offset, len } => write!(f, "load    {offset:#08x} {len} B"),
            TraceStep::Begin { op } => write!(f, "--- operation {op} begins"),
            TraceStep::End { op } => write!(f, "--- operation {op} returns"),
        }
    }
}

/// Stored bytes for people: the number if it is a word, else the length and the first bytes.
struct Bytes<'a>(&'a [u8]);

impl fmt::Display for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Ok(word) = <[u8; 8]>::try_from(self.0) {
            return write!(f, "= {:#x}", u64::from_le_bytes(word));
        }
        write!(f, "{} B =", self.0.len())?;
        for byte in self.0.iter().take(8) {
            write!(f, " {byte:02x}")?;
        }
        if self.0.len() > 8 {
            write!(f, " ..")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_gives_back_what_it_took() {
        let site = Location::caller();
        let steps = [
            TraceStep::Begin { op: 7 },
            TraceStep::Store {
                offset: 130,
                bytes: &[1, 2, 3],
            },
            TraceStep::NtStore {
                offset: 8,
                bytes: &9u64.to_le_bytes(),
            },
            TraceStep::Flush { offset: 130 },
            TraceStep::Fence,
            TraceStep::Load { offset: 1, len: 2 },
            TraceStep::End { op: 7 },
        ];
        let mut trace = Trace::new(vec![0; 256]);
        for (thread, step) in (0..).zip(steps) {
            trace.push(TraceEvent { step, site, thread });
        }
        assert_eq!(trace.len(), steps.len());
        for ((event, thread), step) in trace.iter().zip(0..).zip(steps) {
            assert_eq!(event, TraceEvent { step, site, thread });
        }
        assert_eq!(trace.get(4).map(|event| event.step), Some(TraceStep::Fence));
        assert!(trace.get(steps.len()).is_none());
        let text = format!("{trace:?}");
        assert!(text.contains("store   0x000082 3 B = 01 02 03"), "{text}");
        assert!(text.contains("ntstore 0x000008 = 0x9"), "{text}");
        assert!(text.contains("flush   0x000080"), "{text}");
        trace.clear();
        assert!(trace.is_empty());
        assert_eq!(trace.base().len(), 256);
    }
}
