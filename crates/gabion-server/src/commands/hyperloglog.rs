//! HyperLogLog: `PFADD`, `PFCOUNT`, `PFMERGE`, and what tests of them use.

use crate::command::{
    ADMIN, Command, CommandGroup, DENYOOM, DIRECT, FAST, LONG, READONLY, WRITE, command,
};
use crate::events::EventClasses;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::hll::{HyperLogLog, SketchError, cached};
use crate::random;
use crate::store::meta::{KeyRecord, RecordHead};

const ABOUT: CommandGroup = CommandGroup::HyperLogLog;

pub(crate) const COMMANDS: &[Command] = &[
    command("pfadd", -2, pfadd)
        .flags(WRITE | DENYOOM | FAST | DIRECT)
        .keys(1, 1, 1)
        .about(ABOUT, "2.8.9", "Counts elements."),
    command("pfcount", -2, pfcount)
        .flags(READONLY)
        .keys(1, -1, 1)
        .about(
            ABOUT,
            "2.8.9",
            "Estimates how many different elements were counted.",
        ),
    command("pfdebug", 3, pfdebug)
        .flags(WRITE | DENYOOM | ADMIN)
        .keys(2, 2, 1)
        .about(ABOUT, "2.8.9", "Shows the encoding of a HyperLogLog."),
    command("pfmerge", -2, pfmerge)
        .flags(WRITE | DENYOOM)
        .keys(1, -1, 1)
        .about(ABOUT, "2.8.9", "Merges HyperLogLogs."),
    command("pfselftest", 1, pfselftest)
        .flags(ADMIN | LONG)
        .about(ABOUT, "2.8.9", "Tests the estimates."),
];

fn fault(defect: SketchError) -> Fault {
    Fault::line(match defect {
        SketchError::Other => "WRONGTYPE Key is not a valid HyperLogLog string value.",
        SketchError::Corrupt => "INVALIDOBJ Corrupted HLL object detected",
    })
}

/// The sketch of a record.
fn sketch(meta: &KeyRecord) -> Result<HyperLogLog> {
    HyperLogLog::read(meta.string()?).map_err(fault)
}

/// Bytes that the sparse form may take.
fn sparse_bytes_max(execution: &Execution<'_>) -> usize {
    let text = execution.server.settings.text("hll-sparse-max-bytes");
    text.parse().unwrap_or_default()
}

fn pfadd(execution: &mut Execution<'_>) -> Result<()> {
    let (key, elements) = (execution.arg(1), execution.args.from(2));
    let found = execution.find(key)?;
    let (head, mut sketch) = match &found {
        Some(meta) => (meta.head, sketch(meta)?),
        None => (RecordHead::STRING, HyperLogLog::default()),
    };
    let mut changes = found.is_none();
    for element in elements.iter() {
        changes |= sketch.add(element);
    }
    if changes {
        let value = sketch.write(sparse_bytes_max(execution));
        execution.put(key, head, &[&value])?;
        execution.notify(EventClasses::STRING, "pfadd", key);
    }
    execution.reply.flag(changes);
    Ok(())
}

/// All keys together; of one the estimate is kept in its string. Several clients may do that at
/// once, since they write the same.
fn pfcount(execution: &mut Execution<'_>) -> Result<()> {
    let keys = execution.args.from(1);
    if keys.len() > 1 {
        let mut union = HyperLogLog::default();
        for key in keys.iter() {
            if let Some(meta) = execution.look_up(key)? {
                union.merge(&sketch(&meta)?);
            }
        }
        reply_estimate(execution, union.estimate());
        return Ok(());
    }
    let key = execution.arg(1);
    let Some(meta) = execution.look_up(key)? else {
        execution.reply.integer(0);
        return Ok(());
    };
    let sketch = sketch(&meta)?;
    let estimate = match cached(meta.body()) {
        Some(estimate) => estimate,
        None => {
            let estimate = sketch.estimate();
            let mut value = meta.body().to_vec();
            value[8..16].copy_from_slice(&estimate.to_le_bytes());
            execution.put(key, meta.head, &[&value])?;
            estimate
        }
    };
    reply_estimate(execution, estimate);
    Ok(())
}

fn reply_estimate(execution: &mut Execution<'_>, estimate: u64) {
    execution
        .reply
        .integer(i64::try_from(estimate).unwrap_or(i64::MAX));
}

fn pfmerge(execution: &mut Execution<'_>) -> Result<()> {
    let key = execution.arg(1);
    let mut union = HyperLogLog::default();
    let mut head = RecordHead::STRING;
    for (index, source) in execution.args.from(1).iter().enumerate() {
        if let Some(meta) = execution.look_up(source)? {
            union.merge(&sketch(&meta)?);
            if index == 0 {
                head = meta.head;
            }
        }
    }
    let value = union.write(sparse_bytes_max(execution));
    execution.put(key, head, &[&value])?;
    execution.notify(EventClasses::STRING, "pfadd", key);
    execution.reply.ok();
    Ok(())
}

fn pfdebug(execution: &mut Execution<'_>) -> Result<()> {
    let key = execution.arg(2);
    let word = execution.arg(1).to_ascii_lowercase();
    let Some(meta) = execution.find(key)? else {
        return Err(Fault::line("ERR The specified key does not exist"));
    };
    let mut sketch = sketch(&meta)?;
    match word.as_slice() {
        b"getreg" => {
            let registers = sketch.registers();
            execution.reply.array(registers.len());
            for register in registers {
                execution.reply.integer(i64::from(*register));
            }
        }
        b"encoding" => {
            let name = if sketch.is_dense { "dense" } else { "sparse" };
            execution.reply.simple(name);
        }
        b"todense" => {
            let changes = !sketch.is_dense;
            if changes {
                sketch.is_dense = true;
                let value = sketch.write(0);
                execution.put(key, meta.head, &[&value])?;
            }
            execution.reply.flag(changes);
        }
        _ => {
            return Err(Fault::new(format!(
                "ERR Unknown PFDEBUG subcommand '{}'",
                String::from_utf8_lossy(execution.arg(1))
            )));
        }
    }
    Ok(())
}

/// Counts random elements, and compares each estimate and each form with what was counted.
fn pfselftest(execution: &mut Execution<'_>) -> Result<()> {
    let mut sketch = HyperLogLog::default();
    let mut count = 0_u32;
    for round in 0..100_u32 {
        for _ in 0..1 + round * 10 {
            sketch.add(&random::number().to_le_bytes());
            count += 1;
        }
        let written = sketch.clone().write(3000);
        let read = HyperLogLog::read(&written).map_err(fault)?;
        let estimate = read.estimate() as f64;
        let error = (estimate - f64::from(count)).abs();
        // Eight times the standard error, and one for the smallest counts.
        if read.registers() != sketch.registers() || error > 1.0 + 0.065 * f64::from(count) {
            return Err(Fault::new(format!(
                "TESTFAILED {count} elements were estimated as {estimate}"
            )));
        }
    }
    execution.reply.ok();
    Ok(())
}
