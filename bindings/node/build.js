'use strict'

// Builds the native library and puts it where `binding.js` finds it.
//
//     node build.js [PROFILE]
//
// PROFILE is one of cargo's: `dev` unless it is given; `measure` is what is published.

const { execFileSync } = require('node:child_process')
const fs = require('node:fs')
const path = require('node:path')

const profile = process.argv[2] ?? 'dev'
const command = ['build', '--locked', '--package', 'gabion-node', '--profile', profile]
// A published library has no symbols, which are most of its size.
const strip = profile === 'dev' ? [] : ['--config', `profile.${profile}.strip=true`]
const artifacts = execFileSync(
  'cargo', [...command, ...strip, '--message-format', 'json-render-diagnostics'],
  { cwd: __dirname, stdio: ['ignore', 'pipe', 'inherit'], maxBuffer: 1 << 28, encoding: 'utf8' }
)
const library = artifacts.split('\n')
  .filter(line => line.startsWith('{'))
  .map(line => JSON.parse(line))
  .find(one => one.reason === 'compiler-artifact' && one.target.name === 'gabion_node')
const made = library.filenames.find(name => /\.(so|dylib|dll)$/.test(name))
const directory = path.join(__dirname, 'prebuilds', `${process.platform}-${process.arch}`)
const file = path.join(directory, 'gabion-level.node')
fs.mkdirSync(directory, { recursive: true })
// Under another name first: a process that has the old file mapped keeps it.
fs.copyFileSync(made, `${file}.new`)
fs.renameSync(`${file}.new`, file)
