//! Backups: stores as of a moment, in a repository that holds shared data once.
//!
//! # Idea
//! A backup is a list of files, and a file a list of pieces. Each piece is an object of the
//! repository, named by the hash of its bytes, so equal pieces are one object, whatever backup or
//! store they belong to. Immutable files have marks by which a later backup recognizes them without
//! reading ([`source::KnownPieces`]): it neither reads nor writes them. The rest is small; its hash
//! shows what is unchanged.
//!
//! # Layout
//! A repository is one directory:
//!
//! | file | what |
//! |---|---|
//! | `BACKUPS` | the root, by which a repository is known |
//! | `LOCK` | held while a backup is made or pruned, shared while objects are read |
//! | `<id>.backup` | the description of a backup; 16 hexadecimal digits |
//! | `<hash>.object` | an object; 64 hexadecimal digits |
//! | `<id>.logpart` | a part of a store's log (`archive`); 16 hexadecimal digits |
//! | `ARCHIVE` | the repository's own number, if it has parts of logs |
//! | `*.tmp`, `new-*` | what is being written |
//!
//! `layout` has the bytes of root and descriptions, `part` those of parts of logs.
//!
//! # Invariants
//! - B1. An object is durable, with its name, before a description that names it is written. A
//!   description is whole or absent.
//! - B2. No description is there, nor comes back after a crash, that names an object which a prune
//!   has removed: descriptions go first, durably.
//! - B3. An object that a description names stands in for its bytes, as long as it has their
//!   length; one that none names is of no use.
//! - B4. Nothing is removed while a description cannot be read: it may name anything.
//!
//! # Durability and recovery
//! A backup exists, durably, when its description has its final name. An error removes what was
//! written for it. After a crash, the next backup or prune removes objects that no description
//! names, and unfinished files.
//!
//! # Rooms
//! | file | journey |
//! |---|---|
//! | `source` | a moment of a store, as its engine gives it |
//! | `create`, `restore`, `verify`, `prune` | the four things that are done with a repository |
//! | `archive`, `replay` | the log behind backups comes into it, and out of it |
//! | `objects` | bytes become objects, and objects bytes |
//! | `layout`, `part` | root, descriptions and parts of logs on the medium |
//! | `transfer` | progress, the limit on the rate, and the end on demand |

mod archive;
mod create;
mod layout;
mod objects;
mod part;
mod prune;
mod replay;
mod restore;
pub(crate) mod source;
mod transfer;
mod verify;

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use gabion_media::{Disk, Purpose, TEMPORARY_SUFFIX};
use serde::{Serialize, Serializer};

use self::layout::{BackupDescription, ROOT, ROOT_NAME, backup_name, parse_backup_name};
use self::part::{LogParts, part_name};
use crate::engine::EngineHandle;
use crate::names::LOCK;
use crate::{Clock, Engine, Error, Problem, Result};

pub use self::archive::ArchivedLog;
pub use self::prune::{PruneReport, RetentionPolicy};
pub use self::replay::{RestoreUntil, RestoredUntil};
pub use self::transfer::{BackupOptions, BackupProgress};
pub use self::verify::VerifyReport;

/// A directory with backups of one or more stores. It may be on another file system than the
/// stores.
///
/// Each operation holds the repository's lock while it runs, and fails with [`Error::is_locked`] if
/// another one holds it. [`BackupRepository::list`] needs no lock.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = |name: &str| dir.path().join(name);
/// use gabion::{BackupOptions, BackupRepository, Db};
///
/// let db = Db::open(path("store"))?;
/// db.put("basket", "stones")?;
/// let repository = BackupRepository::create_or_open(path("backups"))?;
/// let backup = db.backup(&repository, BackupOptions::default())?;
/// db.put("basket", "sand")?;
///
/// repository.restore(backup.id, path("restored"), BackupOptions::default())?;
/// let restored = Db::open(path("restored"))?;
/// assert_eq!(restored.get("basket")?.as_deref(), Some(&b"stones"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BackupRepository {
    disk: Disk,
    clock: Clock,
    /// Bytes of an archived log after which a round of a restore may end.
    round_bytes: usize,
}

/// Serializes a time since 1970 as milliseconds.
fn as_millis<S: Serializer>(
    time: &Duration,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// A backup.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BackupInfo {
    /// Its number in the repository; later ones have higher numbers.
    pub id: u64,
    /// When the backup began: time since 1970, serialized as `created_ms`.
    #[serde(rename = "created_ms", serialize_with = "as_millis")]
    pub created: Duration,
    /// The directory of the store.
    pub store: String,
    /// The name of the store's engine.
    pub engine: &'static str,
    /// The sequence number of the last write in it; all earlier writes are in it too.
    pub position: u64,
    /// Bytes in its files, without holes.
    pub bytes: u64,
    /// Bytes that were new to the repository and were copied.
    pub bytes_copied: u64,
    /// Number of its files.
    pub files: u64,
    /// Number of files with bytes that were new to the repository.
    pub files_copied: u64,
    /// How far the log goes that is archived behind it; `None` if it was made without the log.
    pub log: Option<BackupLog>,
}

/// How far a backup can be restored beyond itself: [`BackupRepository::restore_until`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BackupLog {
    /// The sequence number of the last write that can be restored.
    pub position: u64,
    /// When it was archived: time since 1970, serialized as `archived_ms`.
    #[serde(rename = "archived_ms", serialize_with = "as_millis")]
    pub archived: Duration,
}

/// The backups of a repository.
#[non_exhaustive]
#[derive(Clone, Debug, Default, Serialize)]
pub struct BackupList {
    /// Those that can be read, oldest first.
    pub backups: Vec<BackupInfo>,
    /// Descriptions, and parts of the log, that cannot.
    pub problems: Vec<Problem>,
}

/// What the descriptions of a repository say.
#[derive(Default)]
struct Descriptions {
    good: Vec<(u64, BackupDescription)>,
    bad: Vec<(u64, Error)>,
}

/// What is said of a directory without a root, in which there is something of that name.
fn not_a_repository(path: &Path, name: Option<&str>) -> Error {
    Error::NotARepository {
        path: path.to_owned(),
        why: match name {
            Some(name) => {
                format!("the directory has no file {ROOT_NAME}, but others, such as {name}")
            }
            None => "it is empty".to_owned(),
        },
    }
}

/// An error if a directory without a root has directories, but for that of a new file system.
fn check_directories(path: &Path) -> Result<()> {
    if path.join(ROOT_NAME).exists() {
        return Ok(());
    }
    let entries = path.read_dir().into_iter().flatten().flatten();
    let mut directories = entries.filter(|entry| {
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        is_directory && entry.file_name() != "lost+found"
    });
    match directories.next() {
        Some(found) => {
            let name = found.file_name().to_string_lossy().into_owned();
            Err(not_a_repository(path, Some(&name)))
        }
        None => Ok(()),
    }
}

impl BackupRepository {
    /// Opens the repository in the directory `path`; creates it, with missing parents, if the
    /// directory is missing or empty.
    ///
    /// # Errors
    /// [`Error::NotARepository`] for a directory of other things; [`Error::NewerFormat`];
    /// [`Error::Media`].
    pub fn create_or_open(path: impl AsRef<Path>) -> Result<BackupRepository> {
        let path = path.as_ref();
        check_directories(path)?;
        let disk = match path.is_dir() {
            true => Disk::system(path)?,
            false => Disk::create_system(path)?,
        };
        BackupRepository::create_or_open_on(disk)
    }

    /// Opens the repository in the directory `path`, to which nothing need be written for all but
    /// backups and prunes.
    ///
    /// # Errors
    /// As [`BackupRepository::create_or_open`]; [`Error::NotARepository`] where there is none.
    pub fn open(path: impl AsRef<Path>) -> Result<BackupRepository> {
        let path = path.as_ref();
        if !path.is_dir() {
            return Err(Error::NotARepository {
                path: path.to_owned(),
                why: "the directory does not exist".to_owned(),
            });
        }
        check_directories(path)?;
        BackupRepository::open_on(Disk::system(path)?)
    }

    /// As [`BackupRepository::create_or_open`], on a disk of any kind.
    ///
    /// # Errors
    /// Those of [`BackupRepository::create_or_open`].
    #[doc(hidden)]
    pub fn create_or_open_on(disk: Disk) -> Result<BackupRepository> {
        let is_new = |disk: &Disk| -> Result<bool> {
            let temporary = format!("{ROOT_NAME}{TEMPORARY_SUFFIX}");
            let ours = |name: &String| *name == LOCK || *name == temporary;
            Ok(disk.list()?.iter().all(ours))
        };
        if is_new(&disk)? {
            let _lock = disk.lock(LOCK)?;
            // Whoever had the lock before may have made it.
            if is_new(&disk)? {
                // DURABLE: from here on there is a repository, without backups.
                disk.replace(ROOT_NAME, &ROOT.encode(|_| {}), Purpose::Metadata)?;
            }
        }
        BackupRepository::open_on(disk)
    }

    /// As [`BackupRepository::open`], on a disk of any kind.
    ///
    /// # Errors
    /// Those of [`BackupRepository::open`].
    #[doc(hidden)]
    pub fn open_on(disk: Disk) -> Result<BackupRepository> {
        if !disk.exists(ROOT_NAME)? {
            let names = disk.list()?;
            let name = names.first().map(String::as_str);
            return Err(not_a_repository(disk.path(), name));
        }
        ROOT.read(&disk, |bytes| ROOT.decode(bytes, |_| Ok(())))?;
        Ok(BackupRepository {
            disk,
            clock: Clock::system(),
            round_bytes: replay::ROUND_BYTES,
        })
    }

    /// The same, with another clock than the system's.
    #[doc(hidden)]
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> BackupRepository {
        BackupRepository { clock, ..self }
    }

    /// The same, with other rounds in which a restore replays the log.
    #[doc(hidden)]
    #[must_use]
    pub fn with_round_bytes(self, round_bytes: usize) -> BackupRepository {
        BackupRepository {
            round_bytes,
            ..self
        }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.disk.path()
    }

    /// The backups. Reads their descriptions, and the heads of parts of the log.
    ///
    /// # Errors
    /// [`Error::Media`].
    pub fn list(&self) -> Result<BackupList> {
        let all = self.descriptions()?;
        let parts = self.parts()?;
        let backups = all.good.iter().map(|(id, own)| own.info(*id, &parts));
        Ok(BackupList {
            backups: backups.collect(),
            problems: self.unreadable(&all, &parts),
        })
    }

    /// The problems of descriptions and parts that cannot be read.
    fn unreadable(&self, all: &Descriptions, parts: &LogParts) -> Vec<Problem> {
        let problem = |name: String, error: &Error| Problem::of(error, &self.disk.path_of(&name));
        let descriptions = all.bad.iter();
        let descriptions = descriptions.map(|(id, error)| problem(backup_name(*id), error));
        let parts = parts.bad.iter();
        let parts = parts.map(|(id, error)| problem(part_name(*id), error));
        descriptions.chain(parts).collect()
    }

    /// The numbers of all backups, in ascending order.
    fn ids(&self) -> Result<Vec<u64>> {
        let names = self.disk.list()?;
        Ok(names
            .iter()
            .filter_map(|own| parse_backup_name(own))
            .collect())
    }

    fn description(&self, id: u64) -> Result<BackupDescription> {
        match BackupDescription::read(&self.disk, id) {
            Err(Error::Media(error)) if error.is_not_found() => Err(Error::NoSuchBackup {
                id,
                existing: self.ids()?.iter().fold(String::new(), |mut all, id| {
                    let comma = if all.is_empty() { "" } else { ", " };
                    let _ = write!(all, "{comma}{id}");
                    all
                }),
            }),
            read => read,
        }
    }

    /// Reads all descriptions, oldest first. One that goes meanwhile was pruned.
    fn descriptions(&self) -> Result<Descriptions> {
        let mut all = Descriptions::default();
        for id in self.ids()? {
            match BackupDescription::read(&self.disk, id) {
                Ok(description) => all.good.push((id, description)),
                Err(Error::Media(error)) if error.is_not_found() => {}
                Err(error @ Error::Media(_)) => return Err(error),
                Err(error) => all.bad.push((id, error)),
            }
        }
        Ok(all)
    }
}

impl BackupDescription {
    fn info(&self, id: u64, parts: &LogParts) -> BackupInfo {
        let log = self.log.map(|link| {
            let last = parts.behind(link.place).0.last().copied();
            let (position, archived_ms) =
                last.map_or((0, 0), |(_, last)| (last.to.number(), last.archived_ms));
            BackupLog {
                position: position.max(self.position),
                archived: Duration::from_millis(archived_ms.max(link.taken_ms)),
            }
        });
        BackupInfo {
            id,
            created: Duration::from_millis(self.created_ms),
            store: self.store.clone(),
            engine: self.engine.name(),
            position: self.position,
            bytes: self.bytes(),
            bytes_copied: self.bytes_copied,
            files: self.files.len() as u64,
            files_copied: self.files_copied,
            log,
        }
    }
}

/// What is being backed up.
pub(crate) struct BackupOrigin<'o> {
    pub(crate) engine: Engine,
    pub(crate) path: &'o Path,
    pub(crate) handle: &'o EngineHandle,
}
