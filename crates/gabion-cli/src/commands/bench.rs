//! `bench`: turns the command line into settings and prints the results.

use std::path::Path;

use gabion::{Db, Engine, Error, MappedOptions, Options, Tuning};
use gabion_lab::result::PhaseResult;
use gabion_lab::run::{Runner, Settings, Subject};
use gabion_lab::target::{Store, TargetCapabilities};
use gabion_lab::targets::gabion_store;
use gabion_lab::workload::{Distribution, Workload};
use serde_json::json;

use crate::args::bench::{BenchArguments, DistributionChoice, WorkArguments};
use crate::failure::Failure;
use crate::output::{Output, tell};
use crate::table::{table_header, table_row};

const MIB: u64 = 1 << 20;

/// Size of the cache where there is memory for it.
const CACHE_BYTES: u64 = 1 << 30;

/// What a record takes in a mapped store beside its bytes, about.
const RECORD_OVERHEAD_BYTES: u64 = 96;

/// Runs the phases and prints their results.
pub(crate) fn run(arguments: &BenchArguments, output: &mut Output) -> Result<(), Failure> {
    let phases = arguments
        .phases
        .iter()
        .map(|name| {
            Workload::named(name).ok_or_else(|| Failure::usage(format!("there is no phase {name}")))
        })
        .collect::<Result<Vec<_>, Failure>>()?;
    let settings = settings(&arguments.work);
    settings.check()?;
    if !arguments.keep {
        check_phases(
            arguments.engine.parse().map_err(Failure::usage::<String>)?,
            &phases,
        )?;
    }
    // Before an old store goes.
    options(arguments)?.check()?;
    if arguments.fresh {
        delete_store(&arguments.db)?;
    }
    let db = open(arguments)?;
    // That of a store that is kept, whatever the arguments say.
    let engine = db.engine();
    check_phases(engine, &phases)?;
    let store = gabion_store::opened(db, store_settings(arguments, engine)?);
    let results = measure(&*store, engine, settings, arguments, &phases, output);
    let results = results.and_then(|results| {
        store.close()?;
        Ok(results)
    })?;
    if arguments.json {
        output.json(&results)?;
    } else {
        output.flush()?;
    }
    for result in &results {
        for note in &result.notes {
            tell(&format!("note: {}: {note}", result.phase));
        }
    }
    Ok(())
}

/// Refuses phases that a store of this engine cannot do.
fn check_phases(engine: Engine, phases: &[&Workload]) -> Result<(), Failure> {
    let abilities = TargetCapabilities {
        ordered: engine.capabilities().ordered,
        backward: engine.capabilities().ordered,
        synced_writes: true,
        persistent: true,
        files: true,
        transactions: engine.capabilities().transactions,
        merges: false,
    };
    for phase in phases {
        if let Some(why) = phase.lacks(&abilities) {
            let name = phase.name;
            return Err(Failure::usage(format!("{engine} cannot run {name}: {why}")));
        }
    }
    Ok(())
}

fn measure(
    store: &dyn Store,
    engine: Engine,
    settings: Settings,
    arguments: &BenchArguments,
    phases: &[&Workload],
    output: &mut Output,
) -> Result<Vec<PhaseResult>, Failure> {
    let subject = Subject {
        store,
        target: engine.name(),
        dir: &arguments.db,
        existing: arguments.keep,
        repetition: 0,
    };
    let runner = Runner::new(subject, settings)?;
    if !arguments.json {
        output.line(&table_header())?;
    }
    let mut results = Vec::new();
    for workload in phases {
        let result = runner.run(workload)?;
        if !arguments.json {
            output.line(&table_row(&result))?;
            output.flush()?;
        }
        results.push(result);
    }
    Ok(results)
}

fn options(arguments: &BenchArguments) -> Result<Options, Failure> {
    let engine: Engine = arguments.engine.parse().map_err(Failure::usage::<String>)?;
    let work = &arguments.work;
    let record_bytes = (work.key_size + work.value_size) as u64 + RECORD_OVERHEAD_BYTES;
    let options = Options::default()
        .engine(engine)
        .create_if_missing(!arguments.keep)
        .error_if_exists(!arguments.keep)
        .durability(arguments.durability.durability)
        .memory_bytes_max(arguments.memory_mb.unwrap_or(0).saturating_mul(MIB))
        .table_reads(arguments.table_reads)
        .compression(arguments.compression)
        .tuning(tuning(arguments));
    let mut mapped = MappedOptions::default().expected_records(work.num);
    if engine.capabilities().mapped {
        let records_bytes = work.num.saturating_mul(3 * record_bytes);
        mapped.pool_bytes = mapped.pool_bytes.max(records_bytes);
    }
    Ok(options.mapped(mapped))
}

fn tuning(arguments: &BenchArguments) -> Tuning {
    let mut tuning = Tuning::default()
        .memtable_form(arguments.memtable_form)
        .background_bytes_per_second_max(arguments.background_mb_per_s.saturating_mul(MIB));
    tuning.cache_bytes = cache_bytes(arguments);
    tuning.memtable_budget_bytes = arguments.memtable_mb.map(|mib| mib.saturating_mul(MIB));
    if let Some(bytes) = arguments.block_bytes {
        tuning.block_bytes = bytes;
    }
    if let Some(mib) = arguments.bucket_mb {
        tuning.bucket_bytes = mib.saturating_mul(MIB);
    }
    tuning
}

/// The size of the cache, unless it follows from the memory that the store may use.
fn cache_bytes(arguments: &BenchArguments) -> Option<u64> {
    match (arguments.cache_mb, arguments.memory_mb) {
        (Some(mib), _) => Some(mib.saturating_mul(MIB)),
        (None, Some(_)) => None,
        (None, None) => {
            let usable = gabion_media::usable_memory_bytes().unwrap_or(u64::MAX);
            Some(CACHE_BYTES.min(usable / 4))
        }
    }
}

fn open(arguments: &BenchArguments) -> Result<Db, Failure> {
    let options = options(arguments)?;
    if arguments.keep {
        crate::store::require(&arguments.db)?;
    }
    options.open(&arguments.db).map_err(|error| match error {
        Error::InvalidOption {
            option: "error_if_exists",
            ..
        } => Failure::new(format!(
            "{} holds a store; use --keep to measure the store as it is, --fresh to delete it \
             first, or another directory",
            arguments.db.display()
        )),
        error => error.into(),
    })
}

/// Deletes the store in `dir`, if it holds one.
fn delete_store(dir: &Path) -> Result<(), Failure> {
    match gabion::destroy(dir) {
        Err(Error::NotAStore { .. }) => Ok(()),
        destroyed => Ok(destroyed?),
    }
}

/// What the arguments say about the work to be done.
pub(super) fn settings(work: &WorkArguments) -> Settings {
    Settings {
        num: work.num,
        reads: work.reads.unwrap_or(work.num),
        writers: work.writers,
        threads: work.threads,
        batch: work.batch,
        key_bytes: work.key_size,
        value_bytes: work.value_size,
        distribution: work.distribution.map(distribution),
        seed: work.seed,
        write_rate: work.write_rate,
        rest_seconds: work.rest_seconds,
        ..Settings::default()
    }
}

/// How the store is opened, for the report.
fn store_settings(
    arguments: &BenchArguments,
    engine: Engine,
) -> Result<serde_json::Value, Failure> {
    let mut settings = json!({
        "durability": arguments.durability.durability.to_string(),
        "table_reads": arguments.table_reads.to_string(),
        "memtable_form": arguments.memtable_form.to_string(),
        "background_mb_per_s": arguments.background_mb_per_s,
        "existing": arguments.keep,
    });
    if !engine.capabilities().mapped {
        let sizes = options(arguments)?.engine(engine).memory_sizes();
        settings["memory_mb"] = json!(sizes.bytes_max / MIB);
        settings["cache_mb"] = json!(sizes.cache / MIB);
        settings["memtable_mb"] = json!(sizes.memtables / MIB);
    }
    if engine == Engine::Wip {
        settings["compression"] = json!(arguments.compression.to_string());
        settings["block_bytes"] = json!(arguments.block_bytes);
        settings["bucket_mb"] = json!(arguments.bucket_mb);
    }
    Ok(settings)
}

/// The lab's word for a distribution of the command line.
fn distribution(choice: DistributionChoice) -> Distribution {
    match choice {
        DistributionChoice::Uniform => Distribution::Uniform,
        DistributionChoice::Zipfian => Distribution::Zipfian,
        DistributionChoice::Latest => Distribution::Latest,
        DistributionChoice::Sequential => Distribution::Sequential,
        DistributionChoice::ZipfianComposite => Distribution::ZipfianComposite,
        DistributionChoice::Exponential => Distribution::Exponential,
    }
}
