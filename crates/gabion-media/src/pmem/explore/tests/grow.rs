//! An array that grows by moving into a larger block: the bugs of table resizes.

use super::super::{OpOutcome, Subject, SubjectMedium};
use super::heap::{BITMAP, MAGIC, RETIRED, ROOT, bit, find};
use super::{Words, assert_caught, assert_clean};

/// What is wrong with an array.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bug {
    Nothing,
    /// P-CLHT: entries reach the new table before its pointer is durable.
    WriteBeforePublish,
    /// CCEH: the new table is published before it is durable.
    PublishedBeforeCopied,
    /// P-CLHT: the old table is leaked around a resize.
    OldLeaked,
    /// P-CLHT: the list of old tables is not durable, and a table is freed twice.
    FreedTwice,
}

/// An array of pairs of lines: the root holds its offset and, in the low bits, its lines.
struct Array(Bug);

/// Words that an array of so many lines holds behind its length.
const fn room(lines: u64) -> u64 {
    lines * 8 - 1
}

fn place(root: u64) -> (u64, u64) {
    (root & !63, root & 63)
}

fn bits(root: u64) -> u64 {
    let (at, lines) = place(root);
    ((1 << lines) - 1) * bit(at)
}

impl Array {
    fn free_retired(&self, words: &Words) {
        let retired = words.get(RETIRED);
        if retired == 0 {
            return;
        }
        // The one that is not the root is to be freed: the old one once the new one is published,
        // else the new one.
        let (old, new) = (retired >> 32, retired & 0xffff_ffff);
        let root = words.get(ROOT);
        let gone = if root == new { old } else { new };
        words.mark(bits(gone), false);
        words.set(RETIRED, 0);
        words.persist(RETIRED);
    }

    fn grow(&self, words: &Words, root: u64) -> Option<u64> {
        let (at, lines) = place(root);
        let (count, target) = (u32::try_from(lines).ok()? + 1, lines + 1);
        let new = find(words.get(BITMAP), count)?;
        let new_root = new | target;
        if !matches!(self.0, Bug::OldLeaked) {
            words.set(RETIRED, root << 32 | new_root);
            if self.0 != Bug::FreedTwice {
                words.persist(RETIRED);
            }
        }
        words.mark(bits(new_root), true);
        for word in 0..lines * 8 {
            words.set(new + word * 8, words.get(at + word * 8));
        }
        if self.0 != Bug::PublishedBeforeCopied {
            (0..lines).for_each(|line| words.flush(new + line * 64));
            words.fence();
        }
        words.set(ROOT, new_root);
        if self.0 != Bug::WriteBeforePublish {
            words.persist(ROOT);
        }
        if self.0 == Bug::PublishedBeforeCopied {
            (0..lines).for_each(|line| words.flush(new + line * 64));
            words.fence();
        }
        if self.0 == Bug::OldLeaked {
            words.mark(bits(root), false);
        } else if self.0 == Bug::FreedTwice {
            // The list is emptied without waiting, and what was freed goes to the next.
            words.mark(bits(root), false);
            words.set(RETIRED, 0);
        } else {
            self.free_retired(words);
        }
        Some(new_root)
    }
}

impl Subject for Array {
    type Op = u64;
    type Structure = Words;
    type Content = Vec<u64>;

    fn bytes(&self) -> u64 {
        4096
    }

    fn create(&self, stage: &SubjectMedium) -> Result<Words, String> {
        let words = Words(stage.medium());
        let first = find(0, 1).unwrap_or(0);
        for (offset, value) in [
            (BITMAP, bit(first)),
            (ROOT, first | 1),
            (RETIRED, 0),
            (first, 0),
        ] {
            words.set(offset, value);
            words.flush(offset);
        }
        words.fence();
        words.set(0, MAGIC);
        words.persist(0);
        Ok(words)
    }

    fn open(&self, stage: &SubjectMedium) -> Result<Option<Words>, String> {
        let words = Words(stage.medium());
        if words.get(0) != MAGIC {
            return Ok(None);
        }
        self.free_retired(&words);
        Ok(Some(words))
    }

    fn apply(&self, words: &Words, value: &u64) -> Result<OpOutcome, String> {
        let mut root = words.get(ROOT);
        let len = words.get(place(root).0);
        if len == room(place(root).1) {
            match self.grow(words, root) {
                Some(new) => root = new,
                None => return Ok(OpOutcome::Refused),
            }
        }
        let at = place(root).0;
        words.set(at + 8 + len * 8, *value);
        words.persist(at + 8 + len * 8);
        words.set(at, len + 1);
        words.persist(at);
        Ok(OpOutcome::Done)
    }

    fn content(&self, words: &Words) -> Result<Vec<u64>, String> {
        let root = words.get(ROOT);
        let (at, lines) = place(root);
        let (used, reached) = (words.get(BITMAP), bits(root));
        if used & !reached != 0 {
            return Err(format!("blocks {:#b} are leaked", used & !reached));
        }
        if reached & !used != 0 {
            return Err(format!("blocks {:#b} are free and in use", reached & !used));
        }
        let len = words.get(at);
        if len > room(lines) {
            return Err(format!("{len} entries in {lines} lines"));
        }
        Ok((0..len)
            .map(|index| words.get(at + 8 + index * 8))
            .collect())
    }

    fn empty(&self) -> Vec<u64> {
        Vec::new()
    }

    fn expect(&self, content: &mut Vec<u64>, value: &u64) {
        content.push(*value);
    }

    fn name(&self, _: &u64) -> &'static str {
        "append"
    }

    fn probes(&self) -> Vec<u64> {
        (900..910).collect()
    }

    fn reports_loads(&self) -> bool {
        true
    }
}

fn ops() -> Vec<u64> {
    (1..=50).collect()
}

#[test]
fn a_correct_array_is_clean_until_there_is_no_room() {
    let report = assert_clean(&Array(Bug::Nothing), &ops());
    assert!(report.total().nested > 0, "{report}");
}

#[test]
fn published_bugs_of_resizes_are_caught() {
    assert_caught(&Array(Bug::WriteBeforePublish), &ops(), "");
    assert_caught(&Array(Bug::PublishedBeforeCopied), &ops(), "");
    assert_caught(&Array(Bug::OldLeaked), &ops(), "are leaked");
    assert_caught(&Array(Bug::FreedTwice), &ops(), "");
}
