//! The arguments of `gabion backup`.

use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use clap::{Args, Subcommand};
use gabion::{Position, RestoreUntil};

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
  gabion backup create --log --db /data/cities --repo /backups/cities
  gabion backup restore --until 1064250 --db /data/restored --repo /backups/cities
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
    /// Archive the log, too: what was written since the last backup with --log, so that the store
    /// can be restored to any write in between. From then on the store keeps its log for that.
    #[arg(long)]
    pub(crate) log: bool,
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
    /// Number of the backup, as `gabion backup list` tells it. With --until, the one to begin with;
    /// without it, the newest from which that moment can be reached.
    #[arg(value_name = "ID", required_unless_present = "until")]
    pub(crate) id: Option<u64>,
    /// Go on with the archived log up to the write of this position, such as 1064250 or 3.1064.250;
    /// or with what was archived up to this time (UTC), such as 2026-11-28T16:45:00Z.
    #[arg(long, value_name = "POSITION|TIME", value_parser = parse_until)]
    pub(crate) until: Option<RestoreUntil>,
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

/// A position, as a number or as `gabion changes` tells it, or a time.
fn parse_until(text: &str) -> Result<RestoreUntil, String> {
    let number = text.parse().ok();
    let number = number.or_else(|| Some(text.parse::<Position>().ok()?.number()));
    if let Some(number) = number {
        return Ok(RestoreUntil::Position(number));
    }
    let seconds = parse_time(text).ok_or(
        "must be a position, such as 1064250, or a time in UTC, such as 2026-11-28T16:45:00Z",
    )?;
    Ok(RestoreUntil::Time(
        UNIX_EPOCH + Duration::from_secs(seconds),
    ))
}

/// Seconds from 1970 to a time as RFC 3339 has it, in UTC and whole seconds.
fn parse_time(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let numbers = |text: &str, mark: char, lengths: [usize; 3]| {
        let parts: Vec<&str> = text.split(mark).collect();
        let is_written = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let are_written = parts.iter().map(|part| part.len()).eq(lengths)
            && parts.iter().all(|part| is_written(part));
        let numbers = parts.iter().map_while(|part| part.parse::<u64>().ok());
        let numbers: Vec<u64> = numbers.collect();
        <[u64; 3]>::try_from(numbers).ok().filter(|_| are_written)
    };
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    let is_leap = leaps(year) > leaps(year.checked_sub(1)?);
    let february = if is_leap { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before = usize::try_from(month.checked_sub(1)?).ok()?;
    let is_day = (1..=*lengths.get(before)?).contains(&day);
    if year < 1970 || !is_day || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let years = year - 1970;
    let months: u64 = lengths.iter().take(before).sum();
    let days = years * 365 + leaps(year - 1) - leaps(1969) + months + day - 1;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
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

    #[test]
    fn moments_are_positions_or_times() {
        for (text, number) in [("0", 0), ("1064250", 1_064_250), ("3.1064.250", 250)] {
            let until = RestoreUntil::Position(number);
            assert_eq!(parse_until(text), Ok(until), "{text}");
        }
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1972-03-01T00:00:01Z", 68_256_001),
            ("2000-02-29T12:00:00Z", 951_825_600),
            ("2026-11-28T16:45:00Z", 1_795_884_300),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
        ] {
            let until = RestoreUntil::Time(UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!(parse_until(text), Ok(until), "{text}");
        }
        for wrong in [
            "",
            "soon",
            "-1",
            "2026-11-28",
            "2026-11-28T16:45:00",
            "2026-11-28T16:45Z",
            "2026-11-31T16:45:00Z",
            "2100-02-29T16:45:00Z",
            "2026-13-01T16:45:00Z",
            "2026-00-01T16:45:00Z",
            "2026-11-28T24:00:00Z",
            "1969-11-28T16:45:00Z",
            "+026-11-28T16:45:00Z",
        ] {
            assert!(parse_until(wrong).is_err(), "{wrong}");
        }
    }
}
