//! Writes what the fuzzer begins with: the files of sound stores, to `corpus/TARGET`.

use gabion_fuzz::TARGETS;

fn main() -> std::io::Result<()> {
    for target in &TARGETS {
        let dir = std::path::Path::new("corpus").join(target.name);
        std::fs::create_dir_all(&dir)?;
        for (number, bytes) in target.seeds().into_iter().enumerate() {
            std::fs::write(dir.join(format!("seed-{number}")), bytes)?;
        }
    }
    Ok(())
}
