//! The process that opened a file or store, as distinct from its forked children.
//!
//! A forked child has copies of all handles, mappings and locks of its parent, and none of its
//! threads. The files are the parent's still: a child that cut, removed, wrote or unlocked one
//! would take it from under the parent's feet. So whatever holds files keeps its [`Owner`], and
//! changes nothing in another process.
//!
//! # How forks are seen
//! The system's library calls back in each child (`pthread_atfork`), which costs those who look one
//! load of a word that never changes, and no system call. A child that was made around the library,
//! by a system call of its own, is found by its process id where that costs nothing that counts:
//! [`Owner::is_this_process`], asked before a close and a drop.

use std::path::PathBuf;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, Result};

/// Forks on the way from the process that first asked to this one. On a cache line of its own:
/// writers read it all the time.
#[repr(align(128))]
struct Forks(AtomicU64);

static FORKS: Forks = Forks(AtomicU64::new(0));

/// What [`Owner::noted`] found last: forks above, process id below; 0 for nothing.
static NOTED: AtomicU64 = AtomicU64::new(0);

/// The process that opened something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    forks: u64,
    process: u32,
}

impl Default for Owner {
    fn default() -> Owner {
        Owner::current()
    }
}

impl Owner {
    /// This process.
    pub fn current() -> Owner {
        watch_forks();
        Owner {
            forks: forks(),
            process: std::process::id(),
        }
    }

    /// As [`Owner::current`], without a system call, for what is made with each operation: a child
    /// that was made around the system's library has its parent's process id here.
    #[inline]
    pub fn noted() -> Owner {
        // ORDER: Relaxed (both); a word of its own, which a fork makes invalid.
        let noted = NOTED.load(Ordering::Relaxed);
        let (forks, process) = (forks(), noted & u64::from(u32::MAX));
        if noted != 0 && noted >> 32 == forks & u64::from(u32::MAX) {
            let process = u32::try_from(process).expect("masked");
            return Owner { forks, process };
        }
        let owner = Owner::current();
        let noted = owner.forks << 32 | u64::from(owner.process);
        // ORDER: Relaxed, as above.
        NOTED.store(noted, Ordering::Relaxed);
        owner
    }

    /// Whether this is still the process, and no forked child of it.
    #[inline]
    pub fn is_here(&self) -> bool {
        self.forks == forks()
    }

    /// As [`Owner::is_here`], by the process id, too.
    pub fn is_this_process(&self) -> bool {
        self.is_here() && self.process == std::process::id()
    }

    /// Its process id.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// An error in any other process than this one; `path` is what it has opened.
    #[inline]
    pub(crate) fn check(&self, path: impl FnOnce() -> PathBuf) -> Result<()> {
        match self.is_here() {
            true => Ok(()),
            false => Err(Error::Forked {
                path: path(),
                owner: self.process,
            }),
        }
    }
}

#[inline]
fn forks() -> u64 {
    // ORDER: Relaxed; the word changes in a child before any other code of it runs.
    FORKS.0.load(Ordering::Relaxed)
}

/// Lets the system's library count the forks from now on.
fn watch_forks() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        #[cfg(all(unix, not(miri)))]
        {
            use std::ffi::c_int;

            type Handler = Option<extern "C" fn()>;

            #[expect(unsafe_code, reason = "the library's call is declared here")]
            unsafe extern "C" {
                fn pthread_atfork(before: Handler, in_parent: Handler, in_child: Handler) -> c_int;
            }

            extern "C" fn in_child() {
                // ORDER: Relaxed; the child has one thread.
                FORKS.0.fetch_add(1, Ordering::Relaxed);
            }

            #[expect(unsafe_code, reason = "calls the library")]
            // SAFETY: the handler does nothing but add to a static word, which may be done at any
            // moment of a child; where it lies in a library that is unloaded, the call ends with
            // it.
            let refused = unsafe { pthread_atfork(None, None, Some(in_child)) };
            // Without memory for it, forks are found by process ids only.
            let _ = refused;
        }
    });
}
