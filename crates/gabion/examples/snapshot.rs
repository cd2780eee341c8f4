//! A consistent view of an earlier moment while writes go on.
//!
//! `cargo run --example snapshot [DIRECTORY]`

use gabion::Db;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "target/example-snapshot".to_owned());
    let db = Db::open(dir)?;
    let stones = db.default_keyspace();
    db.put("granite", "grey")?;
    db.put("marble", "white")?;

    let before = db.snapshot();
    db.put("marble", "green")?;
    db.delete("granite")?;

    assert_eq!(
        before.get(stones, "marble")?.as_deref(),
        Some(&b"white"[..])
    );
    assert_eq!(db.get("marble")?.as_deref(), Some(&b"green"[..]));
    println!(
        "then: {} stones, now: {}",
        before.iter(stones).count(),
        db.iter().count()
    );
    db.close()?;
    Ok(())
}
