'use strict'

// Options as the store takes them: names and values, both of them text.

const binding = require('./binding')

const KNOWN = new Set(binding.optionNames())

// `memoryBytesMax` is what Rust and the book know as `memory_bytes_max`.
function nameOf (option) {
  return option.replace(/[A-Z]/g, letter => '_' + letter.toLowerCase())
}

// Those of the options that a store knows. Others may be for hooks.
function known (options) {
  const known = Object.entries(options).filter(([name]) => KNOWN.has(nameOf(name)))
  return Object.fromEntries(known.map(([name, value]) => [name, meaning(name, value)]))
}

// Databases on LevelDB know whether they compress, and not how.
function meaning (name, value) {
  if (name !== 'compression' || typeof value !== 'boolean') return value
  return value ? undefined : 'none'
}

function settings (options) {
  const names = []
  const values = []
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || value === null) continue
    names.push(nameOf(name))
    values.push(String(value))
  }
  return { names, values }
}

exports.known = known
exports.settings = settings
