//! Ranges and prefixes, in both directions.
//!
//! `cargo run --example scan [DIRECTORY]`

use gabion::Db;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "target/example-scan".to_owned());
    let db = Db::open(dir)?;
    for day in 1..=9 {
        db.put(format!("2026-11-0{day}"), format!("{} stones", day * 10))?;
        db.put(format!("2026-12-0{day}"), "none yet")?;
    }

    println!("from the 3rd to the 5th of November:");
    for pair in db.range("2026-11-03"..="2026-11-05") {
        let (day, stones) = pair?;
        println!("  {}: {}", day.escape_ascii(), stones.escape_ascii());
    }
    println!("the last two days of November, latest first:");
    for pair in db.prefix("2026-11").rev().take(2) {
        let (day, stones) = pair?;
        println!("  {}: {}", day.escape_ascii(), stones.escape_ascii());
    }
    db.close()?;
    Ok(())
}
