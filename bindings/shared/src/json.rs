//! What is told of stores and backups, as JSON: the same in all languages.
//!
//! Names are those of the facade's fields; times are in milliseconds since 1970, positions text.

use gabion::{
    BackupInfo, BackupList, CheckReport, ConsumerInfo, Engine, Keyspace, PruneReport, RepairReport,
    VerifyReport,
};
use serde_json::{Map, Value, json};

use crate::{Failure, Result, options};

fn text(value: &Value) -> String {
    format!("{value:#}")
}

/// Only a path that is no UTF-8 cannot be told.
fn untold(why: serde_json::Error) -> Failure {
    Failure::argument(format!("the report is no JSON: {why}"))
}

/// What an engine can do, and its name.
pub fn capabilities(engine: Engine) -> String {
    let can = engine.capabilities();
    text(&json!({
        "engine": engine.name(),
        "ordered": can.ordered,
        "snapshots": can.snapshots,
        "transactions": can.transactions,
        "expiry": can.expiry,
        "merges": can.merges,
        "ingest": can.ingest,
        "checkpoint": can.checkpoint,
        "backup": can.backup,
        "repair": can.repair,
        "keyspace_options": can.keyspace_options,
        "drop_keyspace": can.drop_keyspace,
        "changes": can.changes,
        "followers": can.followers,
        "mapped": can.mapped,
        "key_bytes_max": can.key_bytes_max,
        "value_bytes_max": can.value_bytes_max,
    }))
}

/// The options that a keyspace has of its own.
pub fn keyspace_options(keyspace: &Keyspace) -> String {
    let pairs = options::of_keyspace(&keyspace.options());
    let pairs = pairs.into_iter();
    let object: Map<String, Value> = pairs.map(|(name, own)| (name.into(), own.into())).collect();
    text(&object.into())
}

/// Consumers of changes.
pub fn consumers(consumers: &[ConsumerInfo]) -> String {
    let one = |own: &ConsumerInfo| {
        json!({
            "name": own.name,
            "position": own.position.to_string(),
            "bytes": own.bytes,
            "is_invalidated": own.is_invalidated,
        })
    };
    text(&consumers.iter().map(one).collect())
}

/// What a check found.
///
/// # Errors
/// [`Code::InvalidArgument`](crate::Code::InvalidArgument) where a path is no UTF-8.
pub fn check(report: &CheckReport) -> Result<String> {
    serde_json::to_string_pretty(report).map_err(untold)
}

/// What a repair saved, and what it could not.
///
/// # Errors
/// [`Code::InvalidArgument`](crate::Code::InvalidArgument) where a path is no UTF-8.
pub fn repair(report: &RepairReport) -> Result<String> {
    serde_json::to_string_pretty(report).map_err(untold)
}

/// A backup.
pub fn backup(backup: &BackupInfo) -> String {
    text(&backup_value(backup))
}

fn backup_value(backup: &BackupInfo) -> Value {
    json!({
        "id": backup.id,
        "created_ms": u64::try_from(backup.created.as_millis()).unwrap_or(u64::MAX),
        "store": backup.store,
        "engine": backup.engine,
        "position": backup.position,
        "bytes": backup.bytes,
        "bytes_copied": backup.bytes_copied,
        "files": backup.files,
        "files_copied": backup.files_copied,
    })
}

/// The backups of a repository.
///
/// # Errors
/// [`Code::InvalidArgument`](crate::Code::InvalidArgument) where a path is no UTF-8.
pub fn backups(list: &BackupList) -> Result<String> {
    Ok(text(&json!({
        "backups": list.backups.iter().map(backup_value).collect::<Vec<_>>(),
        "problems": serde_json::to_value(&list.problems).map_err(untold)?,
    })))
}

/// What a verification found.
///
/// # Errors
/// [`Code::InvalidArgument`](crate::Code::InvalidArgument) where a path is no UTF-8.
pub fn verified(report: &VerifyReport) -> Result<String> {
    serde_json::to_string_pretty(report).map_err(untold)
}

/// What a prune removed.
///
/// # Errors
/// [`Code::InvalidArgument`](crate::Code::InvalidArgument) where a path is no UTF-8.
pub fn pruned(report: &PruneReport) -> Result<String> {
    serde_json::to_string_pretty(report).map_err(untold)
}

#[cfg(test)]
mod tests {
    use gabion::{BackupOptions, BackupRepository, Db, RetentionPolicy};

    use super::*;

    fn read(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_is_told_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let db = Db::open(path("store")).unwrap();
        db.put("a", "1").unwrap();
        assert_eq!(read(&capabilities(db.engine()))["engine"], "wip");
        assert_eq!(read(&capabilities(Engine::Flex))["followers"], false);
        let pairs = [("default_expiry", "300ms")];
        let own = options::keyspace(&pairs).unwrap();
        let own = db.keyspace_with("sessions", &own).unwrap();
        let told = read(&keyspace_options(&own));
        assert_eq!(told, json!({"default_expiry": "300ms"}));
        db.consumer("mirror").unwrap();
        let told = read(&consumers(&db.consumers().unwrap()));
        let position = db.position().unwrap().to_string();
        assert_eq!(told[0]["name"], "mirror");
        assert_eq!(told[0]["position"], position);

        let repository = BackupRepository::create_or_open(path("backups")).unwrap();
        let made = db.backup(&repository, BackupOptions::default()).unwrap();
        let told = read(&backup(&made));
        assert_eq!((&told["id"], &told["engine"]), (&json!(1), &json!("wip")));
        let list = read(&backups(&repository.list().unwrap()).unwrap());
        assert_eq!(list, json!({"backups": [told], "problems": []}));
        let report = repository.verify(None, BackupOptions::default()).unwrap();
        assert_eq!(read(&verified(&report).unwrap())["backups"], 1);
        let report = repository.prune(RetentionPolicy::newest(1)).unwrap();
        assert_eq!(read(&pruned(&report).unwrap())["removed"], json!([]));

        db.close().unwrap();
        let report = gabion::check(path("store")).unwrap();
        assert_eq!(read(&check(&report).unwrap())["problems"], json!([]));
        let report = gabion::repair(path("store"), path("repaired")).unwrap();
        assert_eq!(read(&repair(&report).unwrap())["lost"], json!([]));
    }
}
