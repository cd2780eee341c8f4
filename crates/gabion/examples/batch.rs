//! Several writes that take effect together, across keyspaces.
//!
//! `cargo run --example batch [DIRECTORY]`

use gabion::{Db, WriteBatch};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "target/example-batch".to_owned());
    let db = Db::open(dir)?;
    let accounts = db.keyspace("accounts")?;
    let journal = db.keyspace("journal")?;
    accounts.put("alice", "100")?;
    accounts.put("bob", "100")?;

    // After a crash both balances and the entry of the journal are there, or none of them.
    let mut batch = WriteBatch::new();
    batch.put(&accounts, "alice", "90")?;
    batch.put(&accounts, "bob", "110")?;
    batch.put(&journal, "0001", "alice pays bob 10")?;
    db.write(batch)?;

    for pair in accounts.iter() {
        let (name, balance) = pair?;
        println!("{}: {}", name.escape_ascii(), balance.escape_ascii());
    }
    db.close()?;
    Ok(())
}
