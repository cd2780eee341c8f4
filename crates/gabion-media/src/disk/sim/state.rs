//! The state of a simulated disk: files and names, both as the running system sees them and as they
//! are on the medium, and the changes between the two.
//!
//! A file is an inode with a number; names refer to inodes, and so do open files, as on the system.
//! Every change of a disk is an [`Effect`], and [`DiskState::apply`] is the only function that
//! changes a state; so replaying the effects of a disk leads to the same state again.
//!
//! # Invariants
//! - I1. `durable` of an inode is its content at its last sync that succeeded, and what failed ones
//!   have written besides; applying `pending` to it gives `live`, unless a failed sync dropped
//!   changes (`forgotten`).
//! - I2. Names likewise: `durable_names` plus `pending_names` gives `names`, unless a failed sync
//!   of the directory dropped changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::content::FileContent;
use super::crash;

/// Number of a file, never used again.
pub(super) type Inode = u64;

/// A change of a disk.
#[derive(Debug)]
pub(super) enum Effect {
    Create {
        name: Arc<str>,
        inode: Inode,
    },
    Change {
        inode: Inode,
        change: FileChange,
    },
    Sync {
        inode: Inode,
    },
    /// A sync failed and the system takes the changes for written. A part of them is, if a seed
    /// chooses one.
    Forget {
        inode: Inode,
        part: Option<u64>,
    },
    Rename {
        from: Arc<str>,
        to: Arc<str>,
    },
    Remove {
        name: Arc<str>,
    },
    SyncDir,
    /// A sync of the directory failed and the system takes the changes for written. A part of them
    /// is, if a seed chooses one.
    ForgetDir {
        part: Option<u64>,
    },
    /// Content put onto the medium from outside, as if it had always been there.
    Put {
        name: Arc<str>,
        inode: Inode,
        bytes: Arc<[u8]>,
    },
}

/// A change of one file.
#[derive(Clone, Debug)]
pub(super) enum FileChange {
    Write {
        offset: u64,
        bytes: Arc<[u8]>,
        /// Whether the bytes were stored into a mapping: then the medium may have any first part.
        mapped: bool,
    },
    SetLen(u64),
    /// Reserves the space of a range, which may lie behind the end.
    Reserve {
        offset: u64,
        len: u64,
    },
    /// Gives the space of a range back, which reads as zeros by now.
    GiveBack {
        offset: u64,
        len: u64,
    },
}

/// A change of the directory. It carries the inode, so that it makes sense even where an earlier
/// change of the same name got lost.
#[derive(Clone, Debug)]
pub(super) enum NameChange {
    Create {
        name: Arc<str>,
        inode: Inode,
    },
    Rename {
        from: Arc<str>,
        to: Arc<str>,
        inode: Inode,
    },
    Remove {
        name: Arc<str>,
        inode: Inode,
    },
}

pub(super) type FileNames = BTreeMap<Arc<str>, Inode>;

/// One file.
#[derive(Clone, Debug, Default)]
pub(super) struct SimInode {
    pub(super) live: FileContent,
    pub(super) durable: FileContent,
    pub(super) pending: Vec<FileChange>,
    /// Whether a failed sync dropped changes that `live` still shows.
    pub(super) forgotten: bool,
    /// Of all changes of all disks, the last one of `live`.
    pub(super) revision: u64,
    /// Open handles, which keep a file without a name.
    handles: u32,
}

/// Numbers the changes of all disks.
fn next_revision() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // ORDER: Relaxed; the number only has to differ.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl SimInode {
    /// A file all of whose content is durable.
    pub(super) fn settled(content: FileContent) -> SimInode {
        SimInode {
            durable: content.clone(),
            live: content,
            revision: next_revision(),
            ..SimInode::default()
        }
    }
}

/// All files and names of a disk. Clones share the files' pages.
#[derive(Clone, Debug, Default)]
pub(super) struct DiskState {
    files: BTreeMap<Inode, SimInode>,
    next_inode: Inode,
    names: FileNames,
    pub(super) durable_names: FileNames,
    pub(super) pending_names: Vec<NameChange>,
    /// Handles of all files.
    open_files: u64,
    /// What may have left files behind that nothing leads to, since these were looked for.
    left_behind: usize,
}

impl DiskState {
    /// A disk with these files, all of it durable.
    pub(super) fn settled(
        next_inode: Inode,
        files: BTreeMap<Inode, SimInode>,
        names: FileNames,
    ) -> DiskState {
        let durable_names = names.clone();
        DiskState {
            files,
            next_inode,
            names,
            durable_names,
            ..DiskState::default()
        }
    }

    pub(super) fn new_inode(&self) -> Inode {
        self.next_inode
    }

    pub(super) fn names(&self) -> &FileNames {
        &self.names
    }

    pub(super) fn inode_of(&self, name: &str) -> Option<Inode> {
        self.names.get(name).copied()
    }

    pub(super) fn file(&self, inode: Inode) -> Option<&SimInode> {
        self.files.get(&inode)
    }

    pub(super) fn content(&self, inode: Inode) -> Option<&FileContent> {
        self.files.get(&inode).map(|file| &file.live)
    }

    /// Bytes that the files take which the running system can still reach.
    pub(super) fn used_bytes(&self) -> u64 {
        let mut named: Vec<Inode> = self.names.values().copied().collect();
        named.sort_unstable();
        let reachable =
            |inode, file: &SimInode| file.handles > 0 || named.binary_search(&inode).is_ok();
        let files = self
            .files
            .iter()
            .filter(|&(&inode, file)| reachable(inode, file));
        files.map(|(_, file)| file.live.used_bytes()).sum()
    }

    pub(super) fn open(&mut self, inode: Inode) {
        if let Some(file) = self.files.get_mut(&inode) {
            file.handles += 1;
            self.open_files += 1;
        }
    }

    pub(super) fn open_files(&self) -> u64 {
        self.open_files
    }

    pub(super) fn close(&mut self, inode: Inode) {
        if let Some(file) = self.files.get_mut(&inode) {
            file.handles -= 1;
            self.open_files -= 1;
            if file.handles == 0 {
                self.collect_if_due();
            }
        }
    }

    /// The same disk after its process ended: nobody has files open.
    pub(super) fn without_handles(mut self) -> DiskState {
        self.files.values_mut().for_each(|file| file.handles = 0);
        self.open_files = 0;
        self.collect();
        self
    }

    pub(super) fn apply(&mut self, effect: &Effect) {
        match effect {
            Effect::Create { name, inode } => self.create(name, *inode),
            Effect::Change { inode, change } => {
                // A file that nobody could reach after the change is gone already in a replay,
                // which has no open handles.
                if let Some(file) = self.files.get_mut(inode) {
                    change.apply(&mut file.live);
                    file.revision = next_revision();
                    file.pending.push(change.clone());
                }
            }
            Effect::Sync { inode } => {
                if let Some(file) = self.files.get_mut(inode) {
                    let SimInode {
                        durable, pending, ..
                    } = file;
                    pending.drain(..).for_each(|change| change.apply(durable));
                }
            }
            Effect::Forget { inode, part } => {
                if let Some(file) = self.files.get_mut(inode) {
                    if let Some(seed) = part {
                        file.durable = crash::part_of_content(file, *seed);
                    }
                    file.forgotten |= !file.pending.is_empty();
                    file.pending.clear();
                }
            }
            Effect::Rename { from, to } => {
                if let Some(inode) = self.names.remove(from) {
                    self.names.insert(Arc::clone(to), inode);
                    let (from, to) = (Arc::clone(from), Arc::clone(to));
                    self.pending_names
                        .push(NameChange::Rename { from, to, inode });
                }
            }
            Effect::Remove { name } => {
                if let Some(inode) = self.names.remove(name) {
                    self.pending_names.push(NameChange::Remove {
                        name: Arc::clone(name),
                        inode,
                    });
                }
            }
            Effect::SyncDir => {
                let DiskState {
                    durable_names,
                    pending_names,
                    ..
                } = self;
                pending_names
                    .drain(..)
                    .for_each(|change| change.apply(durable_names));
                self.collect_if_due();
            }
            Effect::ForgetDir { part } => {
                if let Some(seed) = part {
                    self.durable_names = crash::part_of_names(self, *seed);
                }
                self.pending_names.clear();
                self.collect_if_due();
            }
            Effect::Put { name, inode, bytes } => self.put(name, *inode, bytes),
        }
    }

    fn create(&mut self, name: &Arc<str>, inode: Inode) {
        self.next_inode = self.next_inode.max(inode + 1);
        self.files
            .insert(inode, SimInode::settled(FileContent::default()));
        self.names.insert(Arc::clone(name), inode);
        self.pending_names.push(NameChange::Create {
            name: Arc::clone(name),
            inode,
        });
    }

    fn put(&mut self, name: &Arc<str>, inode: Inode, bytes: &[u8]) {
        self.next_inode = self.next_inode.max(inode + 1);
        let file = self.files.entry(inode).or_default();
        file.live = FileContent::from_bytes(bytes);
        file.revision = next_revision();
        file.durable = file.live.clone();
        file.pending.clear();
        file.forgotten = false;
        self.names.insert(Arc::clone(name), inode);
        self.durable_names.insert(Arc::clone(name), inode);
    }

    /// Calls [`DiskState::collect`] when what it may find is worth a look at all files: a disk of
    /// many would spend its time on that.
    fn collect_if_due(&mut self) {
        self.left_behind += 1;
        if 2 * self.left_behind >= self.files.len() {
            self.collect();
        }
    }

    /// Lets go of the files that neither a name, now or after a crash, nor a handle leads to.
    fn collect(&mut self) {
        let mut kept: Vec<Inode> = self.names.values().copied().collect();
        kept.extend(self.durable_names.values());
        kept.extend(self.pending_names.iter().map(NameChange::inode));
        kept.sort_unstable();
        self.files
            .retain(|inode, file| file.handles > 0 || kept.binary_search(inode).is_ok());
        self.left_behind = 0;
    }
}

impl FileChange {
    pub(super) fn apply(&self, content: &mut FileContent) {
        match self {
            FileChange::Write { offset, bytes, .. } => content.write(*offset, bytes),
            FileChange::SetLen(len) => content.set_len(*len),
            FileChange::Reserve { offset, len } => content.reserve(*offset, *len),
            FileChange::GiveBack { offset, len } => content.give_back(*offset, *len),
        }
    }

    /// Length of a file of `len` bytes after this change.
    pub(super) fn len_after(&self, len: u64) -> u64 {
        match self {
            FileChange::Write { offset, bytes, .. } => len.max(offset + bytes.len() as u64),
            FileChange::SetLen(len) => *len,
            FileChange::Reserve {
                offset,
                len: reserved,
            } => len.max(offset + reserved),
            FileChange::GiveBack { .. } => len,
        }
    }
}

impl NameChange {
    fn inode(&self) -> Inode {
        match self {
            NameChange::Create { inode, .. }
            | NameChange::Rename { inode, .. }
            | NameChange::Remove { inode, .. } => *inode,
        }
    }

    pub(super) fn apply(&self, names: &mut FileNames) {
        let mut remove = |name: &Arc<str>, inode| {
            if names.get(name) == Some(&inode) {
                names.remove(name);
            }
        };
        match self {
            NameChange::Create { name, inode } => {
                names.insert(Arc::clone(name), *inode);
            }
            NameChange::Rename { from, to, inode } => {
                remove(from, *inode);
                names.insert(Arc::clone(to), *inode);
            }
            NameChange::Remove { name, inode } => remove(name, *inode),
        }
    }
}
