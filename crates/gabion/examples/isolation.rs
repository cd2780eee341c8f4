//! What each isolation level lets happen: two doctors who may not both be off duty.
//!
//! `cargo run --example isolation [DIRECTORY]`

use gabion::{Db, Error, Isolation, Keyspace, TransactionOptions};

/// Both doctors look who is on call, find that the other one is, and go home.
fn both_go_home(db: &Db, on_call: &Keyspace, isolation: Isolation) -> gabion::Result<usize> {
    for doctor in ["alice", "bob"] {
        on_call.put(doctor, "yes")?;
    }
    let options = TransactionOptions::default().isolation(isolation);
    let (mut alice, mut bob) = (db.begin_with(options)?, db.begin_with(options)?);
    if alice.iter(on_call).count() == 2 {
        alice.delete(on_call, "alice")?;
    }
    if bob.iter(on_call).count() == 2 {
        bob.delete(on_call, "bob")?;
    }
    alice.commit()?;
    match bob.commit() {
        Ok(()) => println!("{isolation:?}: both commits succeed"),
        Err(error @ Error::Conflict { .. }) => println!("{isolation:?}: {error}"),
        Err(error) => return Err(error),
    }
    Ok(on_call.iter().count())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "target/example-isolation".to_owned());
    let db = Db::open(dir)?;
    let on_call = db.keyspace("on call")?;
    // Write skew: each has read what the other one changed, and neither wrote the same key.
    let left = both_go_home(&db, &on_call, Isolation::Snapshot)?;
    println!("on call after it: {left}");
    let left = both_go_home(&db, &on_call, Isolation::Serializable)?;
    println!("on call after it: {left}");
    db.close()?;
    Ok(())
}
