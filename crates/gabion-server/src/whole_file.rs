//! Atomic replacement of files.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Replaces a file by bytes: whoever reads it finds the old ones or the new ones, even after a
/// crash. Those who may read it stay the same; of a new file it is its owner alone.
///
/// # Errors
/// Of the file system.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let permissions = match std::fs::metadata(path) {
        Ok(old) => old.permissions(),
        Err(_) => Permissions::from_mode(0o600),
    };
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".tmp-{}", std::process::id()));
    let made = Path::new(&name);
    let written = write(made, permissions, bytes).and_then(|()| std::fs::rename(made, path));
    if written.is_err() {
        let _ = std::fs::remove_file(made);
    }
    written?;
    // DURABLE: the file's bytes were synced before it got its name; this syncs the name.
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn write(path: &Path, permissions: Permissions, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    // Before there is anything to read.
    file.set_permissions(permissions)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_keeps_its_readers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        replace(&path, b"one").unwrap();
        assert_eq!(mode(), 0o600);
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(
            (std::fs::read(&path).unwrap().as_slice(), mode()),
            (&b"two"[..], 0o640)
        );
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
