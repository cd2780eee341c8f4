//! The same operations on the system's files and on a simulated disk: results, contents, lengths
//! and counts must be the same after each.

use proptest::prelude::*;

use super::*;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// One operation; files are chosen by index, open files by index modulo their number.
#[derive(Clone, Debug)]
enum Step {
    CreateAppend(usize),
    ReopenAppend(usize),
    CreateLog(usize, u64),
    Append(usize, Vec<u8>),
    AppendLog(usize, Vec<u8>, Vec<u8>),
    SyncAppender(usize),
    SyncLog(usize),
    CloseAppender(usize),
    CreateRandom(usize),
    OpenRandom(usize),
    WriteAt(usize, u64, Vec<u8>),
    Punch(usize, u64, u64),
    Reserve(usize, u64, u64),
    Cut(usize, u64),
    SyncRandom(usize),
    FinishLog(usize),
    OpenRead(usize),
    Read(usize, u64, usize),
    Rename(usize, usize),
    Remove(usize),
    Truncate(usize, u64),
    Replace(usize, Vec<u8>),
    SyncFile(usize),
    SyncDir,
}

/// The sizes that are refused, and sizes that are not.
fn size_of_log() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(0), 1 => Just(1 << 32), 10 => 1..10_000_u64]
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..NAMES.len();
    let open = 0..4_usize;
    let bytes = prop::collection::vec(any::<u8>(), 0..6000);
    let few = prop::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        4 => name.clone().prop_map(Step::CreateAppend),
        1 => name.clone().prop_map(Step::ReopenAppend),
        2 => (name.clone(), size_of_log()).prop_map(|(name, size)| Step::CreateLog(name, size)),
        6 => (open.clone(), bytes.clone()).prop_map(|(open, bytes)| Step::Append(open, bytes)),
        6 => (open.clone(), few, bytes.clone()).prop_map(|(o, a, b)| Step::AppendLog(o, a, b)),
        1 => open.clone().prop_map(Step::SyncAppender),
        1 => open.clone().prop_map(Step::SyncLog),
        1 => open.clone().prop_map(Step::CloseAppender),
        1 => open.clone().prop_map(Step::FinishLog),
        2 => name.clone().prop_map(Step::CreateRandom),
        2 => name.clone().prop_map(Step::OpenRandom),
        4 => (open.clone(), 0..9000_u64, bytes.clone())
            .prop_map(|(open, at, bytes)| Step::WriteAt(open, at, bytes)),
        2 => (open.clone(), 0..9000_u64, 1..9000_u64)
            .prop_map(|(open, at, len)| Step::Punch(open, at, len)),
        1 => (open.clone(), 0..9000_u64, 1..9000_u64)
            .prop_map(|(open, at, len)| Step::Reserve(open, at, len)),
        1 => (open.clone(), 0..9000_u64).prop_map(|(open, len)| Step::Cut(open, len)),
        1 => open.clone().prop_map(Step::SyncRandom),
        2 => name.clone().prop_map(Step::OpenRead),
        4 => (open, 0..7000_u64, 0..5000_usize).prop_map(|(o, at, size)| Step::Read(o, at, size)),
        2 => (name.clone(), name.clone()).prop_map(|(from, to)| Step::Rename(from, to)),
        2 => name.clone().prop_map(Step::Remove),
        1 => (name.clone(), 0..9000_u64).prop_map(|(name, len)| Step::Truncate(name, len)),
        1 => (name.clone(), bytes).prop_map(|(name, bytes)| Step::Replace(name, bytes)),
        1 => name.prop_map(Step::SyncFile),
        1 => Just(Step::SyncDir),
    ]
}

/// A disk with its open files.
struct Side {
    disk: Disk,
    appenders: Vec<Appender>,
    logs: Vec<LogFile>,
    randoms: Vec<RandomFile>,
    reads: Vec<ReadFile>,
}

impl Side {
    fn new(disk: Disk) -> Side {
        Side {
            disk,
            appenders: Vec::new(),
            logs: Vec::new(),
            randoms: Vec::new(),
            reads: Vec::new(),
        }
    }

    /// Does one step and tells in words what came of it.
    fn run(&mut self, step: &Step) -> String {
        let disk = &self.disk;
        match step {
            Step::CreateAppend(name) => {
                let created = disk.create_append(NAMES[*name], Purpose::Flush);
                outcome(created.map(|file| self.appenders.push(file)))
            }
            Step::ReopenAppend(name) => {
                let opened = disk.reopen_append(NAMES[*name], Purpose::Gc);
                outcome(opened.map(|file| self.appenders.push(file)))
            }
            Step::CreateLog(name, capacity) => {
                let created = disk.create_log(NAMES[*name], *capacity);
                outcome(created.map(|file| self.logs.push(file)))
            }
            Step::Append(open, bytes) => on(&mut self.appenders, *open, |file| {
                let appended = file.append(bytes);
                format!("{} {}", outcome(appended), file.len())
            }),
            Step::AppendLog(open, first, second) => on(&mut self.logs, *open, |file| {
                let appended = file.append(&[first, second]);
                format!(
                    "{} {} {}",
                    outcome(appended),
                    file.position(),
                    file.remaining()
                )
            }),
            Step::SyncAppender(open) => on(&mut self.appenders, *open, |file| outcome(file.sync())),
            Step::SyncLog(open) => on(&mut self.logs, *open, |file| {
                outcome(file.sync_handle().sync())
            }),
            Step::CloseAppender(open) => {
                drop(take(&mut self.appenders, *open));
                String::new()
            }
            Step::FinishLog(open) => {
                let finished = take(&mut self.logs, *open).map(LogFile::finish);
                finished.map_or_else(String::new, outcome)
            }
            Step::CreateRandom(name) => {
                let created = disk.create_random(NAMES[*name]);
                outcome(created.map(|file| self.randoms.push(file)))
            }
            Step::OpenRandom(name) => {
                let opened = disk.open_random(NAMES[*name]);
                outcome(opened.map(|file| self.randoms.push(file)))
            }
            Step::WriteAt(open, at, bytes) => on(&mut self.randoms, *open, |file| {
                outcome(file.write_at(*at, bytes, Purpose::Flush))
            }),
            Step::Punch(open, at, len) => on(&mut self.randoms, *open, |file| {
                outcome(file.punch(*at, *len).map(drop))
            }),
            Step::Reserve(open, at, len) => on(&mut self.randoms, *open, |file| {
                outcome(file.reserve(*at, *len).map(drop))
            }),
            Step::Cut(open, len) => {
                // As for `truncate` below.
                self.logs.clear();
                on(&mut self.randoms, *open, |file| outcome(file.cut(*len)))
            }
            Step::SyncRandom(open) => on(&mut self.randoms, *open, |file| outcome(file.sync())),
            Step::OpenRead(name) => {
                let opened = disk.open_read(NAMES[*name]);
                outcome(opened.map(|file| self.reads.push(file)))
            }
            Step::Read(open, offset, size) => on(&mut self.reads, *open, |file| {
                let mut buffer = vec![0; *size];
                let read = file.read_exact_at(&mut buffer, *offset);
                if read.is_err() {
                    buffer.clear();
                }
                format!("{} {} {buffer:?}", outcome(read), file.len())
            }),
            Step::Rename(from, to) => outcome(disk.rename(NAMES[*from], NAMES[*to])),
            Step::Remove(name) => outcome(disk.remove(NAMES[*name])),
            Step::Truncate(name, len) => self.truncate(NAMES[*name], *len),
            Step::Replace(name, bytes) => {
                outcome(disk.replace(NAMES[*name], bytes, Purpose::Metadata))
            }
            Step::SyncFile(name) => outcome(disk.sync_file(NAMES[*name])),
            Step::SyncDir => outcome(disk.sync_dir()),
        }
    }

    /// A mapped file must not be cut below its mapping: the system would end the process at the
    /// next append. So all log files are closed first.
    fn truncate(&mut self, name: &str, len: u64) -> String {
        self.logs.clear();
        outcome(self.disk.truncate(name, len))
    }

    fn contents(&self) -> Vec<(String, Vec<u8>)> {
        let names = self.disk.list().unwrap().into_iter();
        names
            .map(|name| (name.clone(), self.disk.read_all(&name).unwrap()))
            .collect()
    }
}

fn on<F>(files: &mut [F], index: usize, run: impl FnOnce(&mut F) -> String) -> String {
    let count = files.len().max(1);
    files.get_mut(index % count).map_or_else(String::new, run)
}

fn take<F>(files: &mut Vec<F>, index: usize) -> Option<F> {
    let count = files.len();
    (count > 0).then(|| files.swap_remove(index % count))
}

/// The result without the path, which differs.
fn outcome(result: Result<()>) -> String {
    match result {
        Ok(()) => "ok".to_owned(),
        Err(Error::Io {
            operation,
            offset,
            source,
            ..
        }) => {
            format!("{operation} {offset:?}: {:?}", source.kind())
        }
        Err(Error::AlreadyExists { .. }) => "exists".to_owned(),
        Err(Error::ShortRead { offset, wanted, .. }) => format!("short {offset} {wanted}"),
        Err(Error::LogFull {
            wanted, remaining, ..
        }) => format!("full {wanted} {remaining}"),
        Err(error) => panic!("no step may end in: {error}"),
    }
}

/// Both disks answer alike to each step, and hold the same after all.
fn same_on_both(steps: &[Step]) -> Result<(), TestCaseError> {
    let dir = tempfile::tempdir().unwrap();
    let mut system = Side::new(Disk::system(dir.path()).unwrap());
    let sim = SimDisk::recording();
    let mut simulated = Side::new(Disk::simulated(&sim));
    for (index, step) in steps.iter().enumerate() {
        let (expected, actual) = (system.run(step), simulated.run(step));
        prop_assert_eq!(expected, actual, "step {}: {:?}", index, step);
        prop_assert_eq!(
            system.disk.counts(),
            simulated.disk.counts(),
            "step {}",
            index
        );
    }
    let expected = system.contents();
    prop_assert!(expected == simulated.contents());
    let killed = Side::new(Disk::simulated(&sim.process_kill(sim.ops())));
    prop_assert!(
        expected == killed.contents(),
        "the end of a process loses nothing"
    );
    Ok(())
}

#[test]
fn nothing_is_read_behind_the_end_as_before_it() {
    let steps = [
        Step::Replace(0, vec![7; 10]),
        Step::OpenRead(0),
        Step::Read(0, 10, 0),
        Step::Read(0, 11, 0),
        Step::Read(0, 11, 1),
    ];
    same_on_both(&steps).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn both_media_do_the_same(steps in prop::collection::vec(step(), 1..60)) {
        same_on_both(&steps)?;
    }
}
