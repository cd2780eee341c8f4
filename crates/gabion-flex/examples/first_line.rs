//! Puts a line on top of a large text without rewriting the text.
//!
//! ```text
//! cargo run --profile measure -p gabion-flex --example first_line -- DIR [MIB]
//! ```
//!
//! Makes a space in `DIR`, which must not exist, with a text of so many MiB, 1024 unless told.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::time::Instant;

use gabion_flex::{FlexSpace, Options};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("name a directory to make")?;
    let mib: u64 = arguments.next().map_or(Ok(1024), |text| text.parse())?;
    std::fs::create_dir(&dir)?;
    let space = FlexSpace::open(&dir, Options::default())?;

    let mut text = String::new();
    let mut number = 0;
    while space.len() < mib << 20 {
        text.clear();
        while text.len() < 1 << 20 {
            number += 1;
            text.push_str(&format!("{number:>12}: a line of the text\n"));
        }
        space.append(text.as_bytes())?;
    }
    space.checkpoint()?;

    let before = space.stats();
    let start = Instant::now();
    space.insert_range(0, b"This line was not here before.\n")?;
    space.sync()?;
    let taken = start.elapsed();
    let written = space.stats().written.since(&before.written);

    let mut lines = BufReader::new(space.file()).lines();
    for line in lines.by_ref().take(3) {
        println!("{}", line?);
    }
    println!("...");
    println!("{number} lines, {} bytes in the space", space.len());
    println!(
        "the first line: {} bytes written, durable after {taken:.1?}",
        written.total_bytes()
    );
    Ok(())
}
