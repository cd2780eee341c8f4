//! A server in a process of its own: one that can be killed, limited, and measured.
//!
//! The process is this program again, told to run the test that wants it alone, and to be a server
//! by variables of its environment. So such a test begins with [`serve_if_asked`].

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use gabion_server::{Config, serve};

use crate::support::Client;

/// Variables of a process that is a server: its directory, `appendfsync`, and the ceiling of its
/// memory.
const DIR: &str = "GABION_SERVER_TEST_DIR";
const FSYNC: &str = "GABION_SERVER_TEST_FSYNC";
const MEMORY: &str = "GABION_SERVER_TEST_MEMORY";

/// What stands before the address that the server listens on.
const MARK: &str = "serving on ";

/// Serves until this process is killed, if it is to be a server.
pub(crate) fn serve_if_asked() {
    let Ok(dir) = std::env::var(DIR) else {
        return;
    };
    let of = |name| std::env::var(name).unwrap();
    let mut config = Config::new(Path::new(&dir).join("store"));
    config.port = Some(0);
    config.fsync = of(FSYNC).parse().unwrap();
    config.memory_bytes_max = of(MEMORY).parse().unwrap();
    serve(config, |addresses| println!("{MARK}{}", addresses.tcp[0])).unwrap();
    std::process::exit(0);
}

/// A process that is a server. It is killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    /// Starts a server over the store in a directory. `test` is the path of the test that asks for
    /// it; `limits` are commands of a shell that are run first.
    pub(crate) fn start(test: &str, dir: &Path, fsync: &str, limits: &str) -> Process {
        let mut child = Command::new("sh")
            // What exceeds the limit of a file's size is an error, and no signal.
            .args(["-c", &format!("trap '' XFSZ; {limits} exec \"$@\""), "sh"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads", "1"])
            .env(DIR, dir)
            .env(FSYNC, fsync)
            .env(MEMORY, (64 << 20).to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines
            .map(Result::unwrap)
            .find_map(|line| Some(line.split_once(MARK)?.1.parse().unwrap()));
        Process {
            address: address.expect("the server starts"),
            child,
        }
    }

    /// A connection.
    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// The address that it listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it by signal 9, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert_eq!(ended, None, "the server has ended by itself");
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Memory that it has of its own, in bytes, as the system counts it, if the system tells.
    pub(crate) fn own_bytes(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).ok()?;
        let line = status.lines().find(|line| line.starts_with("RssAnon:"))?;
        let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kib << 10)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have been killed already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Numbers that look random and follow from a seed.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    /// The next number, which is below a bound.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % bound as u64).unwrap()
    }

    /// One of some things.
    pub(crate) fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// A number from the environment.
pub(crate) fn number_of(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |number| number.parse().unwrap())
}
