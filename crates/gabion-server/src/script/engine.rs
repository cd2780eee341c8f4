//! The interpreter.
//!
//! There is one for all scripts and functions. It runs behind the gate, so one script at a time,
//! and what it finds is the sandbox of `prelude.lua`. A script that has run for long is told to
//! clients ([`RunningScript`]), and can be stopped as long as it has written nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mlua::{
    Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table, Value, Variadic, VmState,
};

use parking_lot::Mutex;

use super::running::RunningScript;
use super::values::{self, ReplyReader};
use super::{bit, json, msgpack, pack};
use crate::acl::User;
use crate::args::OwnedArgs;
use crate::command::CommandTable;
use crate::dispatch::{call_in_script, find};
use crate::execution::Execution;
use crate::random;
use crate::resp::reply::ReplyBuffer;

/// Instructions between two looks at whether the script is to end.
const INSTRUCTIONS_AT_ONCE: u32 = 10_000;

/// The version of Redis whose commands there are.
pub(crate) const VERSION: &str = "7.0.15";
const VERSION_NUMBER: i64 = 0x0007_000f;

/// A function of a library.
#[derive(Debug)]
pub(crate) struct RegisteredFunction {
    /// Its name.
    pub(crate) name: Vec<u8>,
    /// What it does, if its library says so.
    pub(crate) description: Option<Vec<u8>>,
    /// Its flags.
    pub(crate) flags: Vec<String>,
    call: Function,
}

/// A library of functions.
#[derive(Debug)]
pub(crate) struct FunctionLibrary {
    /// Its program, with the line that names it.
    pub(crate) code: Vec<u8>,
    /// Its functions, by their names in lower case.
    pub(crate) functions: BTreeMap<Vec<u8>, RegisteredFunction>,
}

/// The script or function to run.
#[derive(Clone, Debug)]
pub(crate) struct ScriptCall {
    /// The script, or the function.
    pub(crate) function: Function,
    /// What errors call it: the hash of a script, the name of a function.
    pub(crate) name: String,
    /// Whether it cannot write.
    pub(crate) is_readonly: bool,
    /// Whether it is a function.
    pub(crate) is_function: bool,
}

/// All commands, and the user whose script runs: who asks what it may do.
type Asker = Arc<Mutex<Option<(&'static CommandTable, Arc<User>)>>>;

/// The interpreter with all that it has compiled.
#[derive(Debug)]
pub(crate) struct LuaEngine {
    lua: Lua,
    host: Table,
    run: Function,
    set_arguments: Function,
    load_library: Function,
    is_resp3: Arc<AtomicBool>,
    running: Arc<RunningScript>,
    asker: Asker,
    compiled: HashMap<String, Function>,
    /// Libraries by name.
    pub(crate) libraries: BTreeMap<Vec<u8>, FunctionLibrary>,
}

impl LuaEngine {
    /// A new one.
    ///
    /// # Errors
    /// When Lua has no memory.
    pub(crate) fn new(running: Arc<RunningScript>) -> mlua::Result<LuaEngine> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::OS;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        let is_resp3 = Arc::new(AtomicBool::new(false));
        let host = host_table(&lua, &running, &is_resp3)?;
        let asker = Asker::default();
        let asked = Arc::clone(&asker);
        let may = lua.create_function(move |_, args: Variadic<Value>| Ok(may(&asked, &args)))?;
        host.raw_set("may", may)?;
        let prelude = lua.load(include_str!("prelude.lua")).set_name("=prelude");
        let (run, set_arguments, load_library, sandbox) =
            prelude.call::<(Function, Function, Function, Table)>(host.clone())?;
        lua.set_globals(sandbox)?;
        let engine = LuaEngine {
            lua,
            host,
            run,
            set_arguments,
            load_library,
            is_resp3,
            running,
            asker,
            compiled: HashMap::new(),
            libraries: BTreeMap::new(),
        };
        engine.hook()?;
        Ok(engine)
    }

    /// Looks now and then whether the script is to end.
    fn hook(&self) -> mlua::Result<()> {
        let running = Arc::clone(&self.running);
        let triggers = HookTriggers::new().every_nth_instruction(INSTRUCTIONS_AT_ONCE);
        self.lua.set_global_hook(triggers, move |lua, _| {
            if running.interruption().is_none() {
                return Ok(VmState::Continue);
            }
            // From now on after each instruction, so that no `pcall` goes on.
            let at_once = HookTriggers::new().every_nth_instruction(1);
            lua.set_global_hook(at_once, |_, _| Err(interrupted()))?;
            Err(interrupted())
        })
    }

    /// Bytes of memory that scripts hold on to: what they have left behind is given back first.
    pub(crate) fn memory(&self) -> usize {
        // No script can make this fail: the sandbox has no `__gc`.
        let _ = self.lua.gc_collect();
        self.lua.used_memory()
    }

    /// The program of that hash, compiled before or now.
    ///
    /// # Errors
    /// What is wrong with the program.
    pub(crate) fn compile(&mut self, hash: &str, program: &[u8]) -> Result<Function, String> {
        if let Some(function) = self.compiled.get(hash) {
            return Ok(function.clone());
        }
        let function = self.program(program, "@user_script")?;
        self.compiled.insert(hash.to_owned(), function.clone());
        Ok(function)
    }

    fn program(&self, program: &[u8], name: &str) -> Result<Function, String> {
        let chunk = self.lua.load(program).set_name(name);
        let chunk = chunk.set_mode(mlua::chunk::ChunkMode::Text);
        chunk.into_function().map_err(|error| match error {
            mlua::Error::SyntaxError { message, .. } => message,
            error => error.to_string(),
        })
    }

    /// The function of that name, with its flags.
    pub(crate) fn function(&self, name: &[u8]) -> Option<(&RegisteredFunction, Function)> {
        let name = name.to_ascii_lowercase();
        let mut libraries = self.libraries.values();
        let found = libraries.find_map(|library| library.functions.get(&name))?;
        Some((found, found.call.clone()))
    }

    /// Runs a library's program, and returns the functions that it has registered.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn load(&mut self, program: &[u8]) -> Result<Vec<RegisteredFunction>, String> {
        let program = self
            .program(program, "@user_function")
            .map_err(|error| format!("Error compiling function: {error}"))?;
        self.running.limit();
        let loaded = self
            .load_library
            .call::<(bool, Value, Table)>(program)
            .map_err(|error| match self.running.interruption() {
                Some(line) => line.trim_start_matches("ERR ").to_owned(),
                None => error.to_string(),
            });
        self.running.end();
        self.hook().map_err(|error| error.to_string())?;
        let (is_loaded, failure, registered) = loaded?;
        if !is_loaded {
            let line = error_line(&failure);
            let line = line.strip_prefix("ERR ").unwrap_or(&line);
            return Err(format!("Error registering functions: {line}"));
        }
        let mut functions = Vec::new();
        for item in registered.sequence_values::<Table>() {
            functions.push(registered_of(&item.map_err(|error| error.to_string())?)?);
        }
        match functions.is_empty() {
            true => Err("No functions registered".to_owned()),
            false => Ok(functions),
        }
    }

    /// Runs a script or a function, and writes its reply.
    ///
    /// # Errors
    /// When Lua has no memory.
    pub(crate) fn run(
        &self,
        execution: &mut Execution<'_>,
        call: &ScriptCall,
        keys: usize,
    ) -> mlua::Result<()> {
        let arguments = execution.args.from(3);
        let table = |from: usize, to: usize| {
            let strings = arguments.iter().skip(from).take(to - from);
            let strings: mlua::Result<Vec<_>> =
                strings.map(|bytes| self.lua.create_string(bytes)).collect();
            self.lua.create_sequence_from(strings?)
        };
        let keys_table = table(0, keys)?;
        let rest_table = table(keys, arguments.len())?;
        if !call.is_function {
            self.set_arguments
                .call::<()>((keys_table.clone(), rest_table.clone()))?;
        }
        // ORDER: Relaxed; one thread at a time runs scripts.
        self.is_resp3.store(false, Ordering::Relaxed);
        let database = execution.session.database;
        *self.asker.lock() = Some((execution.commands, Arc::clone(&execution.session.user)));
        let mut reply = ReplyBuffer::default();
        let results = self.lua.scope(|scope| {
            let (execution, reply) = (&mut *execution, &mut reply);
            let function = scope.create_function_mut(move |lua, args: Variadic<Value>| {
                self.command(lua, execution, reply, call, &args)
            })?;
            self.host.raw_set("call", function)?;
            let arguments = (&call.function, keys_table, rest_table);
            self.run.call::<(bool, Value)>(arguments)
        });
        execution.session.select(database);
        if let Some(line) = self.running.interruption() {
            self.hook()?;
            let name = &call.name;
            execution.reply.error(&format!("{line} script: {name}."));
            return Ok(());
        }
        let (has_succeeded, value) = results?;
        if has_succeeded {
            // ORDER: Relaxed, as above.
            let is_resp3 = self.is_resp3.load(Ordering::Relaxed);
            values::write(execution.reply, &value, is_resp3);
            return Ok(());
        }
        // A frame that has ended in a call of `redis.call` is not there any more.
        let place = place_of(&value).unwrap_or_else(|| match call.is_function {
            true => "@user_function".to_owned(),
            false => "@user_script".to_owned(),
        });
        let line = error_line(&value);
        execution
            .reply
            .error(&format!("{line} script: {}, on {place}.", call.name));
        Ok(())
    }

    /// `redis.call`: runs a command, and returns its reply, or a table with its error.
    fn command(
        &self,
        lua: &Lua,
        execution: &mut Execution<'_>,
        reply: &mut ReplyBuffer,
        call: &ScriptCall,
        args: &[Value],
    ) -> mlua::Result<Value> {
        if self.running.interruption().is_some() {
            return Err(interrupted());
        }
        reply.out.clear();
        // ORDER: Relaxed, as in `run`.
        reply.is_resp3 = self.is_resp3.load(Ordering::Relaxed);
        let arguments: Option<Vec<_>> = args.iter().map(values::argument).collect();
        match arguments {
            _ if args.is_empty() => {
                reply.error("ERR Please specify at least one argument for this redis.call() call");
            }
            None => {
                reply.error("ERR Lua redis lib command arguments must be strings or integers");
            }
            Some(arguments) => {
                let owned = OwnedArgs::of(&arguments);
                call_in_script(execution, reply, owned.borrow(), call.is_readonly);
            }
        }
        ReplyReader::new(&reply.out).next(lua)
    }
}

/// `redis.acl_check_cmd`: whether the user may run a command; `None` if there is no such one.
fn may(asker: &Asker, args: &[Value]) -> Option<bool> {
    let (commands, user) = asker.lock().clone()?;
    let arguments: Option<Vec<_>> = args.iter().map(values::argument).collect();
    let owned = OwnedArgs::of(&arguments?);
    let args = owned.borrow();
    let command = find(commands, args).ok()?;
    Some(user.check(commands, command, args).is_ok())
}

fn interrupted() -> mlua::Error {
    mlua::Error::runtime("interrupted")
}

/// The line of an error that a script has ended with.
fn error_line(failure: &Value) -> String {
    let text = match failure {
        Value::Table(table) => table.raw_get("err").unwrap_or_default(),
        _ => Value::Nil,
    };
    match text {
        Value::String(text) => text.to_string_lossy(),
        _ => "ERR unknown error".to_owned(),
    }
}

/// Where that was.
fn place_of(failure: &Value) -> Option<String> {
    let Value::Table(table) = failure else {
        return None;
    };
    let source: String = table.raw_get("source").ok()?;
    let line: i64 = table.raw_get("line").ok()?;
    Some(format!("{source}:{line}"))
}

fn registered_of(item: &Table) -> Result<RegisteredFunction, String> {
    let failed = |error: mlua::Error| error.to_string();
    let text = |name: &str| -> Result<Option<Vec<u8>>, String> {
        let found: Option<mlua::LuaString> = item.raw_get(name).map_err(failed)?;
        Ok(found.map(|text| text.as_bytes().to_vec()))
    };
    let flags: Table = item.raw_get("flags").map_err(failed)?;
    let flags: mlua::Result<Vec<String>> = flags.sequence_values().collect();
    Ok(RegisteredFunction {
        name: text("name")?.unwrap_or_default(),
        description: text("description")?,
        flags: flags.map_err(failed)?,
        call: item.raw_get("call").map_err(failed)?,
    })
}

/// What the prelude is given.
fn host_table(
    lua: &Lua,
    running: &Arc<RunningScript>,
    is_resp3: &Arc<AtomicBool>,
) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("redis", super::api::library(lua, is_resp3)?)?;
    table.raw_set("bit", bit::library(lua)?)?;
    table.raw_set("cjson", json::library(lua)?)?;
    table.raw_set("cmsgpack", msgpack::library(lua)?)?;
    table.raw_set("struct", pack::library(lua)?)?;
    table.raw_set("null", Value::NULL)?;
    table.raw_set("version", VERSION)?;
    table.raw_set("version_number", VERSION_NUMBER)?;
    table.raw_set("seed", (random::number() >> 33) as f64)?;
    let line = lua.create_function(|_, text: mlua::LuaString| {
        Ok(super::api::error_line(&text.to_string_lossy()))
    })?;
    table.raw_set("error_line", line)?;
    table.raw_set("place", lua.create_function(|lua, ()| place(lua))?)?;
    let running = Arc::clone(running);
    let interruption = lua.create_function(move |_, ()| Ok(running.interruption()))?;
    table.raw_set("interruption", interruption)?;
    let check = lua.create_function(|_, args: MultiValue| {
        let args = args.into_vec();
        Ok(super::functions::check(&args).err())
    })?;
    table.raw_set("check_function", check)?;
    Ok(table)
}

/// Source and line of the innermost frame of a script.
fn place(lua: &Lua) -> mlua::Result<MultiValue> {
    for level in 0..100 {
        let frame = lua.inspect_stack(level, |frame| {
            let source = frame.source().source.map(|source| source.into_owned());
            (source, frame.current_line())
        });
        match frame {
            None => break,
            Some((Some(source), Some(line))) if source.starts_with("@user_") => {
                let source = lua.create_string(source)?;
                let line = i64::try_from(line).unwrap_or_default();
                return Ok(MultiValue::from_vec(vec![
                    Value::String(source),
                    Value::Integer(line),
                ]));
            }
            Some(_) => {}
        }
    }
    Ok(MultiValue::new())
}
