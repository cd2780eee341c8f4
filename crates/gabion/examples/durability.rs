//! What a completed write survives: chosen for the store, and for single writes.
//!
//! `cargo run --example durability [DIRECTORY]`

use std::time::Duration;

use gabion::{Durability, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "target/example-durability".to_owned());

    // Power loss costs at most the last 20 ms; the death of the process costs nothing.
    let interval = Durability::Interval(Duration::from_millis(20));
    let db = Options::default().durability(interval).open(dir)?;
    db.put("measurement", "42")?;

    // This write is on the medium when it returns, and with it all that came before.
    let keyspace = db.default_keyspace();
    keyspace.put_with("payment", "received", Durability::Sync)?;

    // So is everything so far, whatever its durability was.
    db.persist(Durability::Sync)?;
    println!(
        "the store runs at {}, {} syncs so far",
        db.stats().durability,
        db.stats().syncs
    );
    db.close()?;
    Ok(())
}
