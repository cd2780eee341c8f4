//! Scripts and functions, in Lua 5.1.
//!
//! Scripts run behind the gate, each as one command: what it writes is one commit, an error in the
//! middle leaves what was written before, as with Redis. The sandbox (`prelude.lua`) has Redis'
//! library and those that Redis brings: `cjson`, `cmsgpack`, `struct` and `bit`, all in Rust here.
//! Programs that were loaded by `SCRIPT LOAD` or `EVAL` are kept in memory, libraries of functions
//! in the store.

mod api;
mod bit;
mod engine;
mod functions;
mod host;
mod json;
mod msgpack;
mod pack;
mod running;
mod values;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard, RwLock};

use crate::fault::{Fault, Result};
use crate::store::Store;

pub(crate) use api::hash;
pub(crate) use engine::{FunctionLibrary, LuaEngine, RegisteredFunction, ScriptCall};
pub(crate) use functions::{FLAGS, metadata};
pub(crate) use running::{BUSY_FUNCTION, BUSY_SCRIPT, KillOutcome, RunningScript};

/// A script, known by its hash.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// What is compiled.
    pub(crate) program: Arc<[u8]>,
    /// Its flags, if its first line has any.
    pub(crate) flags: Option<Vec<String>>,
}

impl Script {
    /// Of a program whose first line may name the engine and flags.
    ///
    /// # Errors
    /// What Redis says of a first line that does not fit.
    pub(crate) fn parse(code: &[u8]) -> Result<Script> {
        let Some(rest) = code.strip_prefix(b"#!") else {
            return Ok(Script {
                program: code.into(),
                flags: None,
            });
        };
        let end = memchr::memchr(b'\n', rest).ok_or(Fault::line("ERR Invalid script shebang"))?;
        let (line, program) = rest.split_at(end);
        let line = String::from_utf8_lossy(line);
        let mut words = line.split_ascii_whitespace();
        let engine = words.next().unwrap_or_default();
        if engine != "lua" {
            return Err(Fault::new(format!(
                "ERR Unexpected engine in script shebang: {engine}"
            )));
        }
        let mut flags = Vec::new();
        for word in words {
            let Some(list) = word.strip_prefix("flags=") else {
                return Err(Fault::new(format!(
                    "ERR Unknown lua shebang option: {word}"
                )));
            };
            for flag in list.split(',').filter(|flag| !flag.is_empty()) {
                if !FLAGS.contains(&flag) {
                    return Err(Fault::new(format!(
                        "ERR Unexpected flag in script shebang: {flag}"
                    )));
                }
                flags.push(flag.to_owned());
            }
        }
        Ok(Script {
            program: program.into(),
            flags: Some(flags),
        })
    }

    /// Whether it has a flag.
    pub(crate) fn has(&self, flag: &str) -> bool {
        let flags = self.flags.as_deref().unwrap_or_default();
        flags.iter().any(|known| known == flag)
    }
}

/// All scripts, and the interpreters that run them.
#[derive(Debug, Default)]
pub(crate) struct Scripts {
    /// Scripts by hash.
    pub(crate) known: RwLock<HashMap<String, Script>>,
    /// The script that runs now.
    pub(crate) running: Arc<RunningScript>,
    engine: Mutex<Option<LuaEngine>>,
    /// Libraries and functions, as they were counted last.
    counted: Mutex<(usize, usize)>,
}

impl Scripts {
    /// The interpreter, which is made when it is first needed.
    ///
    /// # Errors
    /// When Lua has no memory, or a library of the store does not load.
    pub(crate) fn engine(&self, store: &Store) -> Result<MappedMutexGuard<'_, LuaEngine>> {
        let mut engine = self.engine.lock();
        if engine.is_none() {
            let mut made = LuaEngine::new(Arc::clone(&self.running)).map_err(failed)?;
            for (name, code) in store.libraries()? {
                let (_, program) = metadata(&code).map_err(Fault::new)?;
                let functions = made
                    .load(program)
                    .map_err(|why| Fault::new(format!("ERR {why}")))?;
                made.libraries.insert(name, library(code, functions));
            }
            self.note(&made);
            *engine = Some(made);
        }
        Ok(MutexGuard::map(engine, |engine| {
            engine.get_or_insert_with(|| unreachable!("it was made above"))
        }))
    }

    /// How many libraries and functions there are.
    ///
    /// # Errors
    /// As [`Scripts::engine`].
    pub(crate) fn counts(&self, store: &Store) -> Result<(usize, usize)> {
        if self.running.elapsed_ms().is_none() {
            drop(self.engine(store)?);
        }
        Ok(*self.counted.lock())
    }

    /// Counts the libraries and functions of the interpreter.
    pub(crate) fn note(&self, engine: &LuaEngine) {
        let functions = engine.libraries.values();
        let functions = functions.map(|library| library.functions.len()).sum();
        *self.counted.lock() = (engine.libraries.len(), functions);
    }

    /// Forgets all scripts, and what they have left in the interpreter.
    pub(crate) fn flush(&self) {
        self.known.write().clear();
        *self.engine.lock() = None;
    }

    /// Bytes that the interpreter takes, 0 while there is none, and how many scripts there are.
    /// Nothing is known of an interpreter that runs.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        let engine = self.engine.try_lock();
        let memory = engine.and_then(|engine| engine.as_ref().map(LuaEngine::memory));
        (memory.unwrap_or_default(), self.known.read().len())
    }
}

/// A library of its code and functions.
pub(crate) fn library(code: Vec<u8>, functions: Vec<RegisteredFunction>) -> FunctionLibrary {
    let named = functions.into_iter();
    FunctionLibrary {
        code,
        functions: named
            .map(|function| (function.name.to_ascii_lowercase(), function))
            .collect(),
    }
}

/// What is said when Lua itself fails.
pub(crate) fn failed(error: mlua::Error) -> Fault {
    Fault::new(format!("ERR the interpreter failed: {error}"))
}
