//! A reproduction of the papers: the outcome of each figure, saved in a directory as soon as it is
//! there.
//!
//! It takes up to an hour, and whatever ends it, the next one goes on behind the last figure that
//! was kept. [`crate::page::reproduction`] shows the figures.
//!
//! The directory has `terms.json`, the terms under which its figures were made, and for each figure
//! that is done `figure-NAME.json`, its [`Outcome`]. A file is written beside its place, synced,
//! and moved there, so that it is there whole or not at all, whenever the process ends: what is
//! there needs not be made again. Figures of other terms are never put beside it.
//!
//! A lock on the directory keeps a second process out. Stores of figures are made below `stores`,
//! which holds nothing of worth: what a process that was killed has left there goes at the next
//! open.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::figure::Outcome;
use crate::targets::Registry;
use crate::{Error, measure};

const TERMS: &str = "terms.json";
const STORES: &str = "stores";

/// How often stores are deleted, and the time between: the process of a run that was just killed
/// may write another file before it ends, too.
const CLEARINGS: usize = 100;
const CLEARING: Duration = Duration::from_millis(20);

/// Whether a scale is one.
///
/// # Errors
/// [`Error::Request`] unless it is a number above 0.
pub fn check_scale(scale: f64) -> Result<(), Error> {
    if scale > 0.0 && scale.is_finite() {
        return Ok(());
    }
    let sentence = format!("the scale {scale} must be above 0");
    Err(Error::Request(sentence))
}

/// Under which terms figures are made; figures of different ones are not shown beside each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FigureTerms {
    /// What the parts of the papers' sizes are multiplied by.
    pub scale: f64,
    /// Version of the lab.
    pub version: String,
    /// The machine.
    pub machine: String,
    /// The peers that the program was built with.
    #[serde(default = "unknown")]
    pub peers: String,
}

fn unknown() -> String {
    "unknown".to_owned()
}

/// A directory of outcomes.
#[derive(Debug)]
pub struct OutcomeStore {
    dir: PathBuf,
    terms: FigureTerms,
    /// Locked for as long as it is open.
    _lock: File,
}

impl FigureTerms {
    /// Those of this program, which has these targets, on this machine, at a scale.
    pub fn of(scale: f64, registry: &Registry) -> FigureTerms {
        let peers: Vec<&str> = registry.peers().collect();
        FigureTerms {
            scale,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine: measure::machine(),
            peers: match &*peers {
                [] => "none".to_owned(),
                peers => peers.join(" "),
            },
        }
    }

    /// These terms after they were written and read, which may cost a scale its last bit.
    fn as_written(&self) -> FigureTerms {
        let text = serde_json::to_string(self).expect("terms always become JSON");
        serde_json::from_str(&text).expect("and JSON that they became is them")
    }

    /// What differs, for a sentence; `None` if nothing does.
    fn differ(&self, others: &FigureTerms) -> Option<String> {
        let differs = [
            ("scale", self.scale.to_string(), others.scale.to_string()),
            ("version", self.version.clone(), others.version.clone()),
            ("machine", self.machine.clone(), others.machine.clone()),
            ("peers", self.peers.clone(), others.peers.clone()),
        ];
        let differs = differs.into_iter().filter(|(_, one, other)| one != other);
        let told: Vec<String> = differs
            .map(|(what, one, other)| format!("{what} {one}, not {other}"))
            .collect();
        (!told.is_empty()).then(|| told.join("; "))
    }
}

impl OutcomeStore {
    /// Opens a directory, which is made if it is not there, to go on under `terms`.
    ///
    /// # Errors
    /// [`Error::Request`] if it holds figures of other terms, or things that are no figures, or if
    /// another process has it open; [`Error::File`] if the system refuses something.
    pub fn open(dir: &Path, terms: FigureTerms) -> Result<OutcomeStore, Error> {
        fs::create_dir_all(dir).map_err(|source| Error::file("make", dir, source))?;
        let lock = File::open(dir).map_err(|source| Error::file("open", dir, source))?;
        // A process that the last run was starting has its lock until it executes its program.
        let mut tries = CLEARINGS;
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if tries > 1 => {
                    tries -= 1;
                    std::thread::sleep(CLEARING);
                }
                Err(TryLockError::WouldBlock) => {
                    let sentence = format!("another process has {} open", dir.display());
                    return Err(Error::Request(sentence));
                }
                Err(TryLockError::Error(source)) => return Err(Error::file("lock", dir, source)),
            }
        }
        let path = dir.join(TERMS);
        if !path.exists() {
            // A process that was killed at its very beginning leaves no more than this.
            let is_ours = |name: OsString| name == "terms.new";
            let entries = fs::read_dir(dir).map_err(|source| Error::file("read", dir, source))?;
            if !entries.flatten().all(|entry| is_ours(entry.file_name())) {
                let dir = dir.display();
                let sentence = format!("{dir} holds something else; name another directory");
                return Err(Error::Request(sentence));
            }
            put(&path, &terms)?;
        }
        // Without its terms, nobody knows what the directory holds.
        let found: FigureTerms = take(&path, "name another directory")?;
        let terms = terms.as_written();
        if let Some(differ) = found.differ(&terms) {
            return Err(Error::Request(format!(
                "{} holds a reproduction with other settings ({differ}); name another directory",
                dir.display()
            )));
        }
        let kept = OutcomeStore {
            dir: dir.to_owned(),
            terms,
            _lock: lock,
        };
        kept.clear()?;
        Ok(kept)
    }

    /// The terms.
    pub fn terms(&self) -> &FigureTerms {
        &self.terms
    }

    /// A directory for stores of figures, which is not there yet.
    pub fn stores(&self) -> PathBuf {
        self.dir.join(STORES)
    }

    /// What came of a figure, if it is done.
    ///
    /// # Errors
    /// [`Error::File`] if the file cannot be read, [`Error::Request`] if it is damaged.
    pub fn outcome(&self, figure: &str) -> Result<Option<Outcome>, Error> {
        let path = self.path(figure);
        if !path.exists() {
            return Ok(None);
        }
        take(&path, "delete it, and it is made anew").map(Some)
    }

    /// Keeps what came of a figure; durable when it returns.
    ///
    /// # Errors
    /// [`Error::File`] if the system refuses something.
    pub fn keep(&self, outcome: &Outcome) -> Result<(), Error> {
        put(&self.path(&outcome.figure), outcome)?;
        self.clear()
    }

    fn path(&self, figure: &str) -> PathBuf {
        self.dir.join(format!("figure-{figure}.json"))
    }

    /// Deletes what stores have left.
    fn clear(&self) -> Result<(), Error> {
        let stores = self.stores();
        for _ in 0..CLEARINGS {
            match fs::remove_dir_all(&stores) {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                    thread::sleep(CLEARING);
                }
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::file("delete", &stores, source));
                }
                _ => return Ok(()),
            }
        }
        let source = io::ErrorKind::DirectoryNotEmpty.into();
        Err(Error::file("delete", &stores, source))
    }
}

impl Drop for OutcomeStore {
    fn drop(&mut self) {
        // What cannot be deleted goes when the directory is opened again.
        let _ = self.clear();
    }
}

/// Writes a file whole or not at all.
fn put(path: &Path, value: &impl Serialize) -> Result<(), Error> {
    let beside = path.with_extension("new");
    let write = || -> io::Result<()> {
        let mut file = File::create(&beside)?;
        serde_json::to_writer_pretty(&mut file, value)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
    };
    write().map_err(|source| Error::file("write", path, source))
}

/// Reads a file; `remedy` is for one that is damaged.
fn take<T: DeserializeOwned>(path: &Path, remedy: &str) -> Result<T, Error> {
    let bytes = fs::read(path).map_err(|source| Error::file("read", path, source))?;
    serde_json::from_slice(&bytes).map_err(|error| {
        let path = path.display();
        Error::Request(format!("{path} is damaged ({error}); {remedy}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::sample;

    fn terms(scale: f64) -> FigureTerms {
        FigureTerms {
            scale,
            version: "1".to_owned(),
            machine: "one".to_owned(),
            peers: "none".to_owned(),
        }
    }

    fn outcome(figure: &str) -> Outcome {
        Outcome {
            figure: figure.to_owned(),
            part: 0.25,
            seconds: 3.5,
            tables: Vec::new(),
            results: vec![sample::empty()],
        }
    }

    fn refused(dir: &Path, terms: FigureTerms) -> String {
        match OutcomeStore::open(dir, terms).unwrap_err() {
            Error::Request(sentence) => sentence,
            error => panic!("{error}"),
        }
    }

    #[test]
    fn what_was_kept_is_there_when_the_directory_is_opened_again() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("new/reproduction");
        let kept = OutcomeStore::open(&dir, terms(0.1)).unwrap();
        assert!(kept.outcome("2.6").unwrap().is_none());
        fs::create_dir_all(kept.stores().join("lab-1-0-0")).unwrap();
        kept.keep(&outcome("2.6")).unwrap();
        assert!(!kept.stores().exists(), "stores go with the figure");
        fs::create_dir_all(kept.stores()).unwrap();
        drop(kept);
        assert!(!dir.join(STORES).exists(), "and when nothing more is made");
        fs::create_dir_all(dir.join(STORES).join("lab-1-0-0")).unwrap();
        let kept = OutcomeStore::open(&dir, terms(0.1)).unwrap();
        assert!(
            !kept.stores().exists(),
            "and after a process that was killed"
        );
        let found = kept.outcome("2.6").unwrap().unwrap();
        let text = |outcome: &Outcome| serde_json::to_string(outcome).unwrap();
        assert_eq!(text(&found), text(&outcome("2.6")));
        assert!(kept.outcome("2.7").unwrap().is_none());
    }

    #[test]
    fn other_terms_are_refused_by_name() {
        let place = tempfile::tempdir().unwrap();
        drop(OutcomeStore::open(place.path(), terms(0.1)).unwrap());
        let sentence = refused(place.path(), terms(0.5));
        assert!(sentence.contains("(scale 0.1, not 0.5)"), "{sentence}");
        let other = FigureTerms {
            version: "2".to_owned(),
            machine: "two".to_owned(),
            peers: "redb".to_owned(),
            ..terms(0.1)
        };
        let sentence = refused(place.path(), other);
        assert!(
            sentence.contains("version 1, not 2; machine one, not two; peers none, not redb"),
            "{sentence}"
        );
        OutcomeStore::open(place.path(), terms(0.1)).unwrap();
    }

    #[test]
    fn a_scale_of_many_digits_is_found_again() {
        let mut scale = 0.123_456_789_012_345_67;
        for _ in 0..100 {
            let place = tempfile::tempdir().unwrap();
            for _ in 0..2 {
                OutcomeStore::open(place.path(), terms(scale)).unwrap();
            }
            scale *= 1.023_456_789_012_3;
        }
    }

    #[test]
    fn a_scale_is_above_nothing() {
        check_scale(3.0).unwrap();
        for scale in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(check_scale(scale).is_err(), "{scale}");
        }
    }

    #[test]
    fn one_process_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let kept = OutcomeStore::open(place.path(), terms(0.1)).unwrap();
        let sentence = refused(place.path(), terms(0.1));
        assert!(sentence.contains("another process has"), "{sentence}");
        drop(kept);
        OutcomeStore::open(place.path(), terms(0.1)).unwrap();
    }

    #[test]
    fn a_directory_of_something_else_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("stores")).unwrap();
        let sentence = refused(place.path(), terms(0.1));
        assert!(sentence.contains("holds something else"), "{sentence}");
        assert!(place.path().join("stores").exists());
        let place = tempfile::tempdir().unwrap();
        File::create(place.path().join("terms.new")).unwrap();
        OutcomeStore::open(place.path(), terms(0.1)).unwrap();
    }

    /// A file that is not whole was not made by us, since ours are moved to their place whole.
    #[test]
    fn a_damaged_file_is_named_with_the_remedy() {
        let place = tempfile::tempdir().unwrap();
        let kept = OutcomeStore::open(place.path(), terms(0.1)).unwrap();
        kept.keep(&outcome("2.6")).unwrap();
        let path = kept.path("2.6");
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(20)
            .unwrap();
        let sentence = kept.outcome("2.6").unwrap_err().to_string();
        assert!(
            sentence.contains("figure-2.6.json is damaged"),
            "{sentence}"
        );
        assert!(sentence.contains("delete it"), "{sentence}");
        drop(kept);
        // To delete the terms would leave figures of which nobody knows whose they are.
        let cut = |path: &Path| File::options().write(true).open(path).unwrap().set_len(5);
        cut(&place.path().join(TERMS)).unwrap();
        let sentence = refused(place.path(), terms(0.1));
        assert!(sentence.contains("terms.json is damaged"), "{sentence}");
        assert!(sentence.contains("name another directory"), "{sentence}");
        let place = tempfile::tempdir().unwrap();
        let kept = OutcomeStore::open(place.path(), terms(0.1)).unwrap();
        // What was written beside its place and not moved there is not taken for the figure.
        File::create(place.path().join("figure-2.7.new")).unwrap();
        assert!(kept.outcome("2.7").unwrap().is_none());
    }
}
