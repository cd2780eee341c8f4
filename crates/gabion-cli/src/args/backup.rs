//! The arguments of `gabion backup`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::parse_bytes;

/// Keep backups of stores in a repository, restore them, and remove old ones.
///
/// A repository is a directory, best on another drive. It holds what its backups have in common
/// once: after the first one, a backup reads and writes what the store has written since. It may
/// hold backups of several stores.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion backup create --db /data/cities --repo /backups/cities --rate 50MB
  gabion backup list --repo /backups/cities
  gabion backup restore 7 --db /data/restored --repo /backups/cities
  gabion backup prune --repo /backups/cities --keep 7 --older-than 30d")]
pub(crate) struct BackupArguments {
    /// What to do.
    #[command(subcommand)]
    pub(crate) action: BackupAction,
}

/// What to do with backups.
#[derive(Debug, Subcommand)]
pub(crate) enum BackupAction {
    /// Back up a store that nobody has open. Makes the repository if there is none.
    Create(CreateArguments),
    /// List the backups.
    List(ListArguments),
    /// Read backups as a whole and name what is missing or damaged; exit status 1 if anything is.
    Verify(VerifyArguments),
    /// Make a store of a backup, in a directory that does not exist or is empty.
    Restore(RestoreArguments),
    /// Remove old backups, and what only they were made of. Of each store, the newest one stays.
    Prune(PruneArguments),
}

/// Which repository.
#[derive(Args, Debug)]
pub(crate) struct RepositoryArguments {
    /// Directory of the repository.
    #[arg(long, visible_alias = "to", value_name = "REPO")]
    pub(crate) repo: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// How fast.
#[derive(Args, Debug)]
pub(crate) struct RateArguments {
    /// Read at most so many bytes per second, such as 50MB.
    #[arg(long, value_name = "BYTES", value_parser = parse_rate)]
    pub(crate) rate: Option<u64>,
}

/// What to back up.
#[derive(Args, Debug)]
pub(crate) struct CreateArguments {
    /// Directory of the store.
    #[arg(long, value_name = "DIR")]
    pub(crate) db: PathBuf,
    #[command(flatten)]
    pub(crate) repository: RepositoryArguments,
    #[command(flatten)]
    pub(crate) rate: RateArguments,
}

/// Which backups to list.
#[derive(Args, Debug)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    pub(crate) repository: RepositoryArguments,
}

/// What to verify.
#[derive(Args, Debug)]
pub(crate) struct VerifyArguments {
    /// Number of the backup; without it, all of them.
    #[arg(value_name = "ID")]
    pub(crate) id: Option<u64>,
    #[command(flatten)]
    pub(crate) repository: RepositoryArguments,
    #[command(flatten)]
    pub(crate) rate: RateArguments,
}

/// What to restore, and where to.
#[derive(Args, Debug)]
pub(crate) struct RestoreArguments {
    /// Number of the backup, as `gabion backup list` tells it.
    #[arg(value_name = "ID")]
    pub(crate) id: u64,
    /// Directory for the store. It is there as a whole or not at all.
    #[arg(long, value_name = "DIR")]
    pub(crate) db: PathBuf,
    #[command(flatten)]
    pub(crate) repository: RepositoryArguments,
    #[command(flatten)]
    pub(crate) rate: RateArguments,
}

/// Which backups stay.
#[derive(Args, Debug)]
pub(crate) struct PruneArguments {
    #[command(flatten)]
    pub(crate) repository: RepositoryArguments,
    /// Keep so many of the newest backups of each store.
    #[arg(long, value_name = "N", required_unless_present = "older_than")]
    pub(crate) keep: Option<u64>,
    /// Remove only backups that are older: 90s, 15m, 12h or 30d.
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    pub(crate) older_than: Option<Duration>,
}

/// Bytes per second: 50MB, 50M, 64MiB, also with /s behind it.
fn parse_rate(text: &str) -> Result<u64, String> {
    let bytes = text.strip_suffix("/s").unwrap_or(text);
    let is_binary = bytes.ends_with("iB");
    let bytes = match bytes.strip_suffix('B') {
        Some(count) if !is_binary => count,
        _ => bytes,
    };
    match parse_bytes(bytes) {
        Ok(rate) if rate > 0 => Ok(rate),
        _ => Err("must be bytes per second, such as 50MB or 64MiB".to_owned()),
    }
}

/// An age with its unit.
fn parse_age(text: &str) -> Result<Duration, String> {
    let units = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)];
    let of_unit = |(unit, seconds): (char, u64)| {
        let count = text.strip_suffix(unit)?.parse::<u64>().ok()?;
        count.checked_mul(seconds)
    };
    let seconds = units.into_iter().find_map(of_unit);
    let seconds = seconds.ok_or("must be a number of s, m, h or d, such as 30d")?;
    Ok(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_ages_have_units() {
        for (text, rate) in [
            ("50MB", 50_000_000),
            ("50M", 50_000_000),
            ("64MiB", 64 << 20),
            ("1GiB/s", 1 << 30),
            ("700", 700),
            ("9kB/s", 9_000),
        ] {
            assert_eq!(parse_rate(text), Ok(rate), "{text}");
        }
        for wrong in ["", "0", "MB", "-1", "fast", "5MBB"] {
            assert!(parse_rate(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_age("30d"), Ok(Duration::from_secs(30 * 86_400)));
        assert_eq!(parse_age("15m"), Ok(Duration::from_secs(900)));
        for wrong in ["", "d", "30", "1.5h", "99999999999999999d"] {
            assert!(parse_age(wrong).is_err(), "{wrong}");
        }
    }
}
