//! What is told of stores and backups, as JSON: the same in all languages.
//!
//! Names are those of the facade's fields; times are in milliseconds since 1970, positions text.

use gabion::{ConsumerInfo, Engine, Keyspace};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{Failure, Result, options};

fn text(value: &Value) -> String {
    format!("{value:#}")
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

/// What a check, a repair, a backup, a list of backups, a verification or a prune tells.
///
/// # Errors
/// [`Code::InvalidArgument`](crate::Code::InvalidArgument) where a path is no UTF-8.
pub fn report(report: &impl Serialize) -> Result<String> {
    serde_json::to_string_pretty(report)
        .map_err(|why| Failure::argument(format!("the report is not JSON: {why}")))
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
        let told = read(&report(&made).unwrap());
        assert_eq!((&told["id"], &told["engine"]), (&json!(1), &json!("wip")));
        assert!(told["created_ms"].is_u64() && told["log"].is_null());
        let list = read(&report(&repository.list().unwrap()).unwrap());
        assert_eq!(list, json!({"backups": [told], "problems": []}));
        let verified = repository.verify(None, BackupOptions::default()).unwrap();
        assert_eq!(read(&report(&verified).unwrap())["backups"], 1);
        let pruned = repository.prune(RetentionPolicy::newest(1)).unwrap();
        assert_eq!(read(&report(&pruned).unwrap())["removed"], json!([]));

        db.close().unwrap();
        let checked = gabion::check(path("store")).unwrap();
        assert_eq!(read(&report(&checked).unwrap())["problems"], json!([]));
        let repaired = gabion::repair(path("store"), path("repaired")).unwrap();
        assert_eq!(read(&report(&repaired).unwrap())["lost"], json!([]));
    }
}
