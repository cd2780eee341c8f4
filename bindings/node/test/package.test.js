'use strict'

// The example, the benchmark on a few records, and what is said about options.

const assert = require('node:assert/strict')
const { spawnSync } = require('node:child_process')
const fs = require('node:fs')
const path = require('node:path')
const test = require('node:test')
const { optionNames } = require('../binding')
const { directory } = require('./helpers')

const root = path.join(__dirname, '..')

function run (...args) {
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' })
  assert.equal(status, 0, stderr)
  return stdout
}

test('the example counts right', t => {
  const printed = run(path.join(root, 'build/examples/visits.js'), path.join(directory(t), 'store'))
  const counts = printed.trim().split('\n').map(line => Number(line.split(' ')[1]))
  assert.equal(counts.reduce((sum, count) => sum + count), 100)
  assert.deepEqual(counts, [...counts].sort((a, b) => b - a))
})

test('the benchmark prints a table', t => {
  const made = directory(t)
  const args = ['--records', '3000', '--rounds', '1', '--dir', made]
  const printed = run(path.join(root, 'bench.js'), ...args, 'gabion-level', 'classic-level')
  for (const figure of ['put', 'get, at once', 'pairs of scans']) {
    assert.match(printed, new RegExp(`^\\| ${figure} \\| \\d+ \\| \\d+ \\|$`, 'm'))
  }
  assert.deepEqual(fs.readdirSync(made), [])
})

test('types name all options of a store', () => {
  const types = fs.readFileSync(path.join(root, 'index.d.ts'), 'utf8')
  const [, list] = /type StoreOption =([^/]*)\/\*\*/.exec(types)
  const named = list.match(/\w+/g)
  // These abstract-level knows, and the others are no options of stores.
  const others = ['createIfMissing', 'errorIfExists', 'defaultExpiry', 'merge', 'isolation',
    'bytesMax', 'attemptsMax']
  const camel = name => name.replace(/_(.)/g, (_, letter) => letter.toUpperCase())
  assert.deepEqual([...named, ...others].sort(), optionNames().map(camel).sort())
})

test('the package has what it needs, and no more', () => {
  const { stdout } = spawnSync(
    'npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], { cwd: root, encoding: 'utf8' }
  )
  const packed = JSON.parse(stdout)
  const [{ files }] = Array.isArray(packed) ? packed : Object.values(packed)
  const names = files.map(file => file.path)
  const needed = new Set(['package.json', 'README.md', 'index.d.ts', 'index.js'])
  for (const name of needed) {
    if (!name.endsWith('.js')) continue
    const text = fs.readFileSync(path.join(root, name), 'utf8')
    for (const [, other] of text.matchAll(/require\('\.\/(.*?)'\)/g)) needed.add(`${other}.js`)
  }
  needed.add(`prebuilds/${process.platform}-${process.arch}/gabion-level.node`)
  assert.deepEqual(names.sort(), [...needed].sort())
})

test('the lock file names no registry', () => {
  const lock = JSON.parse(fs.readFileSync(path.join(root, 'package-lock.json'), 'utf8'))
  for (const [name, one] of Object.entries(lock.packages)) {
    assert.match(one.resolved ?? 'https://registry.npmjs.org/', /^https:\/\/registry\.npmjs\.org\//, name)
  }
})
