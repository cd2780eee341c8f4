//! Options by name and value, so that other languages need no function for each option.
//!
//! Names are those of the fields of [`Options`], [`MappedOptions`](gabion::MappedOptions),
//! [`Tuning`](gabion::Tuning), [`KeyspaceOptions`], [`TransactionOptions`], [`ChangesOptions`],
//! [`BackupOptions`] and [`RetentionPolicy`]; one name means the same thing wherever it stands.
//! Values are text:
//!
//! | kind | examples |
//! |---|---|
//! | a number | `2`, `100000`, `1.5` where fractions make sense |
//! | bytes | `4096`, `64KiB`, `512MiB`, `8GiB` |
//! | a time | `250ms`, `10s`, `5m`, `24h`, `7d`; `max` for no limit |
//! | a switch | `true`, `false` |
//! | words | as the facade prints them: `wip`, `sync`, `interval:100`, `zstd:3`, `add_u64` |

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use gabion::{
    BackupOptions, ChangesOptions, Isolation, KeyspaceOptions, MergeOperator, Options,
    RetentionPolicy, TransactionOptions,
};

use crate::{Code, Failure, Result};

/// What a value becomes part of.
type Set<O> = fn(&mut O, &str) -> Result<(), String>;

/// An option.
struct Setting<O: 'static> {
    name: &'static str,
    set: Set<O>,
}

/// A table of settings: name, path to the field, and how its text is read.
macro_rules! settings {
    ($owner:ty: $($name:ident = $($field:ident).+, $read:expr;)*) => {
        &[$(Setting {
            name: stringify!($name),
            set: |options: &mut $owner, text| {
                options.$($field).+ = $read(text)?;
                Ok(())
            },
        },)*]
    };
}

const STORE: &[Setting<Options>] = settings! { Options:
    engine = engine, word;
    create_if_missing = create_if_missing, switch;
    error_if_exists = error_if_exists, switch;
    read_only = read_only, switch;
    follower = follower, switch;
    durability = durability, word;
    memory_bytes_max = memory_bytes_max, bytes;
    background_threads = background_threads, number;
    log_bytes_max = log_bytes_max, bytes;
    changes_bytes_max = changes_bytes_max, bytes;
    compression = compression, word;
    table_reads = table_reads, word;
    space_amplification_max = space_amplification_max, number;
    garbage_age_max = garbage_age_max, time;
    expiry_lag_max = expiry_lag_max, time;
    transaction_age_max = transaction_age_max, time;
    pool_bytes = mapped.pool_bytes, bytes;
    pool_path = mapped.pool_path, path;
    checkpoints = mapped.checkpoints, switch;
    expected_records = mapped.expected_records, number;
    memtable_budget_bytes = tuning.memtable_budget_bytes, some_bytes;
    cache_bytes = tuning.cache_bytes, some_bytes;
    memtable_form = tuning.memtable_form, word;
    scans_until_ordered = tuning.scans_until_ordered, number;
    block_bytes = tuning.block_bytes, size;
    filter_bits_per_key = tuning.filter_bits_per_key, number;
    paranoid_checks = tuning.paranoid_checks, switch;
    bucket_bytes = tuning.bucket_bytes, bytes;
    split_ways = tuning.split_ways, number;
    sublevels_min = tuning.sublevels_min, number;
    sublevels_max = tuning.sublevels_max, number;
    read_weight = tuning.read_weight, number;
    background_bytes_per_second_max = tuning.background_bytes_per_second_max, bytes;
    concurrent_writers = tuning.concurrent_writers, switch;
};

const KEYSPACE: &[Setting<KeyspaceOptions>] = settings! { KeyspaceOptions:
    compression = compression, some_word;
    block_bytes = block_bytes, some_size;
    filter_bits_per_key = filter_bits_per_key, some_number;
    default_expiry = default_expiry, some_time;
    merge = merge, operator;
};

const TRANSACTION: &[Setting<TransactionOptions>] = settings! { TransactionOptions:
    isolation = isolation, isolation;
    bytes_max = bytes_max, bytes;
    attempts_max = attempts_max, number;
};

const CHANGES: &[Setting<ChangesOptions>] = settings! { ChangesOptions:
    durable_only = durable_only, switch;
};

const BACKUP: &[Setting<BackupOptions<'static>>] = settings! { BackupOptions<'static>:
    bytes_per_second_max = bytes_per_second_max, bytes;
};

const KEEP: &[Setting<RetentionPolicy>] = settings! { RetentionPolicy:
    newest = newest, number;
    younger_than = younger_than, some_time;
};

/// The names of all options of a store, a keyspace and a transaction, in this order; a name that
/// two of them have comes once.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<_> = STORE.iter().map(|setting| setting.name).collect();
    let others = KEYSPACE.iter().map(|setting| setting.name);
    for name in others.chain(TRANSACTION.iter().map(|setting| setting.name)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The options of a store.
///
/// # Errors
/// [`Code::InvalidOption`] with the name of the first one that is unknown, or whose value cannot
/// be read. Values that can be read and do not work are told by the open.
pub fn store<T: AsRef<str>>(pairs: &[(T, T)]) -> Result<Options> {
    let mut options = Options::default();
    set_all(STORE, "store", &mut options, pairs)?;
    Ok(options)
}

/// The options of a keyspace.
///
/// # Errors
/// As [`store`].
pub fn keyspace<T: AsRef<str>>(pairs: &[(T, T)]) -> Result<KeyspaceOptions> {
    let mut options = KeyspaceOptions::default();
    set_all(KEYSPACE, "keyspace", &mut options, pairs)?;
    Ok(options)
}

/// The options of a transaction.
///
/// # Errors
/// As [`store`].
pub fn transaction<T: AsRef<str>>(pairs: &[(T, T)]) -> Result<TransactionOptions> {
    let mut options = TransactionOptions::default();
    set_all(TRANSACTION, "transaction", &mut options, pairs)?;
    Ok(options)
}

/// How changes are read.
///
/// # Errors
/// As [`store`].
pub fn changes<T: AsRef<str>>(pairs: &[(T, T)]) -> Result<ChangesOptions> {
    let mut options = ChangesOptions::default();
    set_all(CHANGES, "reader of changes", &mut options, pairs)?;
    Ok(options)
}

/// The options of a backup, a restore or a verification.
///
/// # Errors
/// As [`store`].
pub fn backup<T: AsRef<str>>(pairs: &[(T, T)]) -> Result<BackupOptions<'static>> {
    let mut options = BackupOptions::default();
    set_all(BACKUP, "backup", &mut options, pairs)?;
    Ok(options)
}

/// Which backups a prune keeps.
///
/// # Errors
/// As [`store`].
pub fn keep<T: AsRef<str>>(pairs: &[(T, T)]) -> Result<RetentionPolicy> {
    let mut keep = RetentionPolicy::default();
    set_all(KEEP, "prune", &mut keep, pairs)?;
    Ok(keep)
}

/// The options that a keyspace has of its own, by name and value, as [`keyspace`] takes them.
pub fn of_keyspace(options: &KeyspaceOptions) -> Vec<(&'static str, String)> {
    let KeyspaceOptions {
        compression,
        block_bytes,
        filter_bits_per_key,
        default_expiry,
        merge,
        ..
    } = options;
    let pairs = [
        ("compression", compression.map(|own| own.to_string())),
        ("block_bytes", block_bytes.map(|own| own.to_string())),
        (
            "filter_bits_per_key",
            filter_bits_per_key.map(|own| own.to_string()),
        ),
        (
            "default_expiry",
            default_expiry.map(|own| format!("{}ms", own.as_millis())),
        ),
        ("merge", merge.as_ref().map(|own| own.name().to_owned())),
    ];
    let set = |(name, value): (_, Option<_>)| Some((name, value?));
    pairs.into_iter().filter_map(set).collect()
}

/// A durability by its word.
///
/// # Errors
/// [`Code::InvalidOption`].
pub fn durability(text: &str) -> Result<gabion::Durability> {
    word(text).map_err(|why| invalid("durability", &why))
}

fn set_all<O, T: AsRef<str>>(
    settings: &[Setting<O>],
    owner: &str,
    options: &mut O,
    pairs: &[(T, T)],
) -> Result<()> {
    for (name, text) in pairs {
        let (name, text) = (name.as_ref(), text.as_ref());
        let setting = settings.iter().find(|setting| setting.name == name);
        let Some(setting) = setting else {
            let known: Vec<_> = settings.iter().map(|setting| setting.name).collect();
            let why = format!(
                "a {owner} has no option of this name; choose from: {}",
                known.join(", ")
            );
            return Err(invalid(name, &why));
        };
        (setting.set)(options, text).map_err(|why| invalid(name, &why))?;
    }
    Ok(())
}

fn invalid(name: &str, why: &str) -> Failure {
    Failure::Refused(Code::InvalidOption, format!("option {name}: {why}"))
}

fn word<T: FromStr<Err = String>>(text: &str) -> Result<T, String> {
    text.parse()
}

fn number<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|why| format!("{text:?} is not a number in range: {why}"))
}

fn switch(text: &str) -> Result<bool, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is neither true nor false"))
}

fn bytes(text: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let of_unit = |(unit, shift): (&str, u32)| Some((text.strip_suffix(unit)?, shift));
    let (digits, shift) = units.into_iter().find_map(of_unit).unwrap_or((text, 0));
    let count = digits.trim_end().parse::<u64>().ok();
    count
        .and_then(|count| count.checked_mul(1 << shift))
        .ok_or_else(|| format!("{text:?} is not a number of bytes such as 4096 or 512MiB"))
}

fn size(text: &str) -> Result<usize, String> {
    bytes(text).and_then(|bytes| bytes.try_into().map_err(|_| format!("{text} is too large")))
}

fn time(text: &str) -> Result<Duration, String> {
    if text == "max" {
        return Ok(Duration::MAX);
    }
    let units = [
        ("ms", 1),
        ("s", 1_000),
        ("m", 60_000),
        ("h", 3_600_000),
        ("d", 86_400_000),
    ];
    let of_unit = |(unit, millis): (&str, u64)| {
        let digits = text.strip_suffix(unit)?.trim_end();
        digits.parse::<u64>().ok()?.checked_mul(millis)
    };
    let millis = units.into_iter().find_map(of_unit);
    millis
        .map(Duration::from_millis)
        .ok_or_else(|| format!("{text:?} is not a duration such as 250ms, 10s, 5m, 24h, 7d or max"))
}

#[expect(clippy::unnecessary_wraps, reason = "as the other readers of values")]
fn path(text: &str) -> Result<Option<PathBuf>, String> {
    Ok(Some(PathBuf::from(text)))
}

fn some_bytes(text: &str) -> Result<Option<u64>, String> {
    bytes(text).map(Some)
}

fn some_size(text: &str) -> Result<Option<usize>, String> {
    size(text).map(Some)
}

fn some_time(text: &str) -> Result<Option<Duration>, String> {
    time(text).map(Some)
}

fn some_word<T: FromStr<Err = String>>(text: &str) -> Result<Option<T>, String> {
    word(text).map(Some)
}

fn some_number<T: FromStr<Err: Display>>(text: &str) -> Result<Option<T>, String> {
    number(text).map(Some)
}

fn operator(text: &str) -> Result<Option<MergeOperator>, String> {
    MergeOperator::built_in(text).map(Some).ok_or_else(|| {
        format!(
            "{text:?} is not a built-in merge operator; use add_i64, add_u64, max_bytes, \
             min_bytes, bit_or, or append: with a separator behind it"
        )
    })
}

fn isolation(text: &str) -> Result<Isolation, String> {
    match text {
        "serializable" => Ok(Isolation::Serializable),
        "snapshot" => Ok(Isolation::Snapshot),
        _ => Err(format!(
            "{text:?} is not an isolation level; use serializable or snapshot"
        )),
    }
}

#[cfg(test)]
mod tests {
    use gabion::{Compression, Durability, Engine};

    use super::*;

    #[test]
    fn values_are_read_by_their_kind() {
        let options = store(&[
            ("engine", "flex"),
            ("durability", "interval:250"),
            ("memory_bytes_max", "256MiB"),
            ("block_bytes", "16KiB"),
            ("space_amplification_max", "1.5"),
            ("garbage_age_max", "2h"),
            ("transaction_age_max", "max"),
            ("create_if_missing", "false"),
            ("cache_bytes", "0"),
            ("pool_path", "a/b"),
        ]);
        let options = options.unwrap();
        assert_eq!(options.engine, Engine::Flex);
        assert_eq!(
            options.durability,
            Durability::Interval(Duration::from_millis(250))
        );
        assert_eq!(options.memory_bytes_max, 256 << 20);
        assert_eq!(options.tuning.block_bytes, 16 << 10);
        assert!((options.space_amplification_max - 1.5).abs() < 1e-9);
        assert_eq!(options.garbage_age_max, Duration::from_secs(7200));
        assert_eq!(options.transaction_age_max, Duration::MAX);
        assert!(!options.create_if_missing);
        assert_eq!(options.tuning.cache_bytes, Some(0));
        assert_eq!(options.mapped.pool_path, Some(PathBuf::from("a/b")));

        let options = keyspace(&[("compression", "lz4"), ("default_expiry", "300ms")]).unwrap();
        assert_eq!(options.compression, Some(Compression::Lz4));
        assert_eq!(options.default_expiry, Some(Duration::from_millis(300)));
        let options = transaction(&[("isolation", "snapshot"), ("bytes_max", "1MiB")]).unwrap();
        assert_eq!(options.isolation, Isolation::Snapshot);
        assert!(changes(&[("durable_only", "true")]).unwrap().durable_only);
        let options = backup(&[("bytes_per_second_max", "50MiB")]).unwrap();
        assert_eq!(options.bytes_per_second_max, 50 << 20);
        let keep = keep(&[("newest", "7"), ("younger_than", "30d")]).unwrap();
        assert_eq!(
            (keep.newest, keep.younger_than),
            (7, Some(Duration::from_secs(30 * 86400)))
        );
    }

    #[test]
    fn options_of_a_keyspace_come_back() {
        let pairs = [
            ("compression", "zstd:3"),
            ("block_bytes", "16384"),
            ("filter_bits_per_key", "12"),
            ("default_expiry", "300ms"),
            ("merge", "append:,"),
        ];
        let told = of_keyspace(&keyspace(&pairs).unwrap());
        assert_eq!(told, pairs.map(|(name, text)| (name, text.to_owned())));
        assert_eq!(of_keyspace(&KeyspaceOptions::default()), []);
    }

    #[test]
    fn what_cannot_be_read_names_the_option() {
        for (name, text) in [
            ("colour", "grey"),
            ("engine", "rocks"),
            ("memory_bytes_max", "-1"),
            ("memory_bytes_max", "99999999999GiB"),
            ("garbage_age_max", "soon"),
            ("garbage_age_max", "99999999999999999d"),
            ("create_if_missing", "yes"),
            ("split_ways", "1.5"),
            ("default_expiry", "1s"),
        ] {
            let failure = store(&[(name, text)]).unwrap_err();
            assert_eq!(failure.code(), Code::InvalidOption, "{name}");
            assert!(failure.to_string().contains(name), "{failure}");
        }
        assert!(keyspace(&[("engine", "wip")]).is_err());
        assert!(keyspace(&[("merge", "multiply")]).is_err());
        let merged = keyspace(&[("merge", "append:,")]).unwrap().merge;
        assert_eq!(merged, MergeOperator::built_in("append:,"));
        assert!(transaction(&[("isolation", "none")]).is_err());
        assert!(changes(&[("durable_only", "1")]).is_err());
        assert!(backup(&[("newest", "1")]).is_err() && keep(&[("newest", "-1")]).is_err());
    }

    #[test]
    fn every_name_is_there_once() {
        let names = names();
        for name in &names {
            assert_eq!(names.iter().filter(|other| *other == name).count(), 1);
        }
        assert!(names.contains(&"default_expiry") && names.contains(&"isolation"));
        // Each default, printed by the facade, is text that is read back.
        let default = Options::default();
        let pairs = [
            ("engine", default.engine.to_string()),
            ("durability", default.durability.to_string()),
            ("compression", default.compression.to_string()),
            ("table_reads", default.table_reads.to_string()),
            ("memtable_form", default.tuning.memtable_form.to_string()),
        ];
        store(&pairs.map(|(name, text)| (name.to_owned(), text))).unwrap();
    }
}
