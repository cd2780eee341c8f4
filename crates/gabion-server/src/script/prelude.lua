-- What scripts find: the libraries of Lua and of Redis, none of which they can change.
--
-- A table that scripts must not change is hidden behind an empty one, its mask: reads go through
-- to the table, writes fail, and `rawset` and `setmetatable` know the masks. The global table is
-- such a mask; behind it, a name that is not there is an error.
--
-- `host` has the functions that are written in Rust. One that can fail returns why, or nil, in
-- front of its results.

local host = ...
local base = _G
local error, type, tostring, rawget, rawset, pairs, xpcall, pcall, select, getmetatable, setmetatable =
  error, type, tostring, rawget, rawset, pairs, xpcall, pcall, select, getmetatable, setmetatable
local loadstring, collectgarbage, concat = loadstring, collectgarbage, table.concat
local setfenv = setfenv

local masks = setmetatable({}, { __mode = "k" })
local READONLY = "Attempt to modify a readonly table"

local function refuse()
  error(READONLY, 2)
end

local nothing = {}
setmetatable(nothing, { __newindex = refuse, __metatable = nothing })
masks[nothing] = true

local function mask(index)
  local made = setmetatable({}, { __index = index, __newindex = refuse, __metatable = nothing })
  masks[made] = true
  return made
end

local function missing(_, name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end

-- Raises what a function of the host has failed with, where the script has called it.
local function finish(failure, ...)
  if failure ~= nil then
    error(failure, 3)
  end
  return ...
end

local function library(functions, constants)
  local made = constants or {}
  for name, call in pairs(functions) do
    made[name] = function(...)
      return finish(call(...))
    end
  end
  return made
end

-- Redis' own library.

local redis = library(host.redis, {
  LOG_DEBUG = 0,
  LOG_VERBOSE = 1,
  LOG_NOTICE = 2,
  LOG_WARNING = 3,
  REPL_NONE = 0,
  REPL_AOF = 1,
  REPL_SLAVE = 2,
  REPL_REPLICA = 2,
  REPL_ALL = 3,
  REDIS_VERSION = host.version,
  REDIS_VERSION_NUM = host.version_number,
})

local function is_error(reply)
  return type(reply) == "table" and rawget(reply, "err") ~= nil
end

function redis.call(...)
  local reply = host.call(...)
  if is_error(reply) then
    error(reply, 0)
  end
  return reply
end

function redis.pcall(...)
  return host.call(...)
end

function redis.error_reply(...)
  local text = ...
  if select("#", ...) ~= 1 or type(text) ~= "string" then
    return { err = "ERR wrong number or type of arguments" }
  end
  return { err = host.error_line(text) }
end

function redis.status_reply(...)
  local text = ...
  if select("#", ...) ~= 1 or type(text) ~= "string" then
    return { err = "ERR wrong number or type of arguments" }
  end
  return { ok = text }
end

function redis.acl_check_cmd(...)
  if select("#", ...) == 0 then
    error("Please specify at least one argument for this redis.acl_check_cmd() call", 2)
  end
  local may = host.may(...)
  if may == nil then
    error("ERR Invalid command passed to redis.acl_check_cmd()", 2)
  end
  return may
end

function redis.breakpoint()
  return false
end

function redis.debug() end

function redis.replicate_commands()
  return true
end

-- Globals.

local string_meta = getmetatable("")
string_meta.__newindex = refuse
string_meta.__metatable = nothing

local globals = {
  assert = assert,
  error = error,
  gcinfo = gcinfo,
  ipairs = ipairs,
  next = next,
  pairs = pairs,
  pcall = pcall,
  rawequal = rawequal,
  rawget = rawget,
  select = select,
  tonumber = tonumber,
  tostring = tostring,
  type = type,
  unpack = unpack,
  xpcall = xpcall,
  _VERSION = _VERSION,
}

function globals.collectgarbage(what, ...)
  if what == nil or what == "collect" or what == "count" or what == "step" then
    return collectgarbage(what or "collect", ...)
  end
  error("collectgarbage: this option is not available to scripts", 2)
end

globals.getmetatable = getmetatable

function globals.setmetatable(changed, meta)
  if masks[changed] then
    error(READONLY, 2)
  end
  return setmetatable(changed, meta)
end

function globals.rawset(changed, name, value)
  if masks[changed] then
    error(READONLY, 2)
  end
  return rawset(changed, name, value)
end

local sandbox

-- Compiled programs could break out of the interpreter, so only text is taken.
function globals.loadstring(text, name)
  if type(text) ~= "string" then
    error("bad argument #1 to 'loadstring' (string expected)", 2)
  end
  if text:byte(1) == 27 then
    return nil, "compiled programs are not taken"
  end
  local loaded, failure = loadstring(text, name)
  if loaded then
    setfenv(loaded, sandbox)
  end
  return loaded, failure
end

function globals.load(next_part, name)
  local parts = {}
  while true do
    local part = next_part()
    if part == nil or part == "" then
      break
    end
    parts[#parts + 1] = part
  end
  return globals.loadstring(concat(parts), name)
end

for _, name in pairs({ "string", "table", "math", "coroutine" }) do
  globals[name] = mask(base[name])
end
string_meta.__index = base.string
base.math.randomseed(host.seed)
globals.os = mask({ clock = base.os.clock })
globals.bit = mask(library(host.bit))
globals.cjson = mask(library(host.cjson, { null = host.null, _NAME = "cjson", _VERSION = "2.1.0" }))
globals.cmsgpack = mask(library(host.cmsgpack, { _NAME = "cmsgpack" }))
globals.struct = mask(library(host.struct))
globals.redis = mask(redis)

setmetatable(globals, { __index = missing })
sandbox = mask(globals)
globals._G = sandbox

-- Where a script has failed: in the outermost frame of it that is known.
local function note_place(failure)
  local interruption = host.interruption()
  if interruption then
    failure = { err = interruption }
  end
  if type(failure) ~= "table" then
    failure = { err = "ERR " .. tostring(failure) }
  elseif getmetatable(failure) == nothing or rawget(failure, "err") == nil then
    return failure
  end
  local source, line = host.place()
  if source then
    failure.source, failure.line = source, line
  end
  return failure
end

local function run(script, keys, arguments)
  return xpcall(function()
    return script(keys, arguments)
  end, note_place)
end

local function set_arguments(keys, arguments)
  rawset(globals, "KEYS", keys)
  rawset(globals, "ARGV", arguments)
end

-- Libraries of functions see another world: no KEYS and ARGV, and while they are loaded little
-- but the means to register functions.

local registered

local function register(...)
  if not registered then
    error("redis.register_function can only be called on FUNCTION LOAD command", 2)
  end
  local failure = host.check_function(...)
  if failure then
    error(failure, 2)
  end
  local name, call, description, flags = ...
  if select("#", ...) == 1 then
    name, call, description, flags =
      rawget(name, "function_name"), rawget(name, "callback"), rawget(name, "description"), rawget(name, "flags")
  end
  for _, known in pairs(registered) do
    if known.name == name then
      error("Function already exists in the library", 2)
    end
  end
  registered[#registered + 1] = { name = name, call = call, description = description, flags = flags or {} }
end

local while_loading = { register_function = register, log = redis.log, REDIS_VERSION = redis.REDIS_VERSION, REDIS_VERSION_NUM = redis.REDIS_VERSION_NUM }
for name, value in pairs(redis) do
  if name:find("^LOG_") then
    while_loading[name] = value
  end
end
setmetatable(while_loading, { __index = missing })

local running = {}
for name, value in pairs(globals) do
  running[name] = value
end
setmetatable(running, { __index = missing })

local loading = {}
setmetatable(loading, { __index = missing })

local library_sandbox = mask(function(_, name)
  if registered then
    local value = rawget(loading, name)
    if value == nil then
      error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
    end
    return value
  end
  local value = rawget(running, name)
  if value == nil then
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end
  return value
end)
running._G = library_sandbox
loading._G = library_sandbox
loading.redis = mask(while_loading)

local function load_library(program)
  setfenv(program, library_sandbox)
  registered = {}
  local is_loaded, failure = run(program)
  local found = registered
  registered = nil
  return is_loaded, failure, found
end

return run, set_arguments, load_library, sandbox
