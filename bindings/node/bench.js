'use strict'

// Puts, gets and scans beside classic-level and lmdb, in turns.
//
//     node bench.js [--records N] [--rounds N] [--dir DIRECTORY] [STORE ...]
//
// Each store gets the same records of 16 + 100 bytes of text, in the same random order, at the
// durability that it has by default: with gabion-level and classic-level all of them survive the
// death of the process once they are acknowledged. The stores take turns, round by round, so that
// what else the machine does falls on all of them; what is printed is the median of the rounds, in
// thousands of operations per second. "At once" are 100 calls of which none waits for another. lmdb
// reads in the thread of JavaScript only, so its figures stand where that is done. A store whose
// package is not installed is left out, which is said.

const fs = require('node:fs')
const os = require('node:os')
const path = require('node:path')
const { parseArgs } = require('node:util')

const VALUE = 'stone and wire, '.repeat(7).slice(0, 100)
const AT_ONCE = 100
const BATCH_PUTS = 1000
const SCAN_PAIRS = 100

// A database of abstract-level.
function level (Level) {
  return async location => {
    const db = new Level(location)
    await db.open()
    return {
      put: (key, value) => db.put(key, value),
      batch: keys => db.batch(keys.map(key => ({ type: 'put', key, value: VALUE }))),
      get: key => db.get(key),
      getMany: keys => db.getMany(keys),
      getSync: key => db.getSync(key),
      scan: (gte, limit) => db.iterator({ gte, limit }).all(),
      close: () => db.close()
    }
  }
}

function lmdb ({ open }) {
  return async path => {
    const db = open({ path, encoding: 'string', noSync: true })
    return {
      put: (key, value) => db.put(key, value),
      batch: keys => db.batch(() => { for (const key of keys) db.put(key, VALUE) }),
      getMany: keys => db.getMany(keys),
      getSync: key => db.get(key),
      scan: (start, limit) => Array.from(db.getRange({ start, limit })),
      close: () => db.close()
    }
  }
}

const STORES = {
  'gabion-level': () => level(require('.').GabionLevel),
  'classic-level': () => level(require('classic-level').ClassicLevel),
  lmdb: () => lmdb(require('lmdb'))
}

// Numbers that are as good as random, and the same for each seed.
function numbers (seed) {
  let state = seed + 0x9e3779b9
  return limit => {
    state = Math.imul(state ^ state >>> 15, 0x2c1b3c6d) + 0x6d2b79f5 | 0
    const mixed = Math.imul(state ^ state >>> 13, 0x297a2d39)
    return ((mixed ^ mixed >>> 16) >>> 0) % limit
  }
}

function * groups (items, size) {
  for (let at = 0; at < items.length; at += size) yield items.slice(at, at + size)
}

// Thousands of operations per second.
async function timed (count, work) {
  const start = process.hrtime.bigint()
  await work()
  return count / Number(process.hrtime.bigint() - start) * 1e6
}

async function runRound (store, keys, random) {
  const third = Math.floor(keys.length / 3)
  const wanted = Array.from({ length: third }, () => keys[random(keys.length)])
  const starts = wanted.slice(0, Math.max(1, third / SCAN_PAIRS))
  const check = value => {
    if (value !== VALUE) throw new Error(`a value is missing: ${value}`)
  }
  const figures = {}
  figures.put = await timed(third, async () => {
    for (const key of keys.slice(0, third)) await store.put(key, VALUE)
  })
  figures['put, at once'] = await timed(third, async () => {
    for (const some of groups(keys.slice(third, 2 * third), AT_ONCE)) {
      await Promise.all(some.map(key => store.put(key, VALUE)))
    }
  })
  figures['put in batches'] = await timed(keys.length - 2 * third, async () => {
    for (const some of groups(keys.slice(2 * third), BATCH_PUTS)) await store.batch(some)
  })
  if (store.get !== undefined) {
    figures.get = await timed(third, async () => {
      for (const key of wanted) check(await store.get(key))
    })
    figures['get, at once'] = await timed(third, async () => {
      for (const some of groups(wanted, AT_ONCE)) {
        for (const value of await Promise.all(some.map(store.get))) check(value)
      }
    })
  }
  figures.getMany = await timed(third, async () => {
    for (const some of groups(wanted, AT_ONCE)) (await store.getMany(some)).forEach(check)
  })
  figures.getSync = await timed(third, async () => {
    for (const key of wanted) check(store.getSync(key))
  })
  figures['pairs of scans'] = await timed(starts.length * SCAN_PAIRS, async () => {
    for (const key of starts) await store.scan(key, SCAN_PAIRS)
  })
  return figures
}

function median (figures) {
  const sorted = [...figures].sort((a, b) => a - b)
  return sorted[Math.floor(sorted.length / 2)]
}

async function main () {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      records: { type: 'string', default: '200000' },
      rounds: { type: 'string', default: '3' },
      dir: { type: 'string', default: os.tmpdir() }
    }
  })
  const chosen = []
  for (const name of positionals.length > 0 ? positionals : Object.keys(STORES)) {
    try {
      chosen.push([name, STORES[name]()])
    } catch (error) {
      if (error.code !== 'MODULE_NOT_FOUND') throw error
      console.log(`left out: ${name} is not installed`)
    }
  }
  const found = new Map()
  for (let round = 0; round < Number(values.rounds); round++) {
    const random = numbers(round)
    const keys = Array.from({ length: Number(values.records) }, () => {
      return random(2 ** 32).toString(16).padStart(8, '0').repeat(2)
    })
    for (const [name, open] of chosen) {
      const directory = fs.mkdtempSync(path.join(values.dir, 'bench-'))
      try {
        const store = await open(path.join(directory, 'store'))
        const figures = await runRound(store, keys, numbers(round + 1000))
        for (const [figure, value] of Object.entries(figures)) {
          if (!found.has(figure)) found.set(figure, new Map())
          const ofStore = found.get(figure)
          ofStore.set(name, [...ofStore.get(name) ?? [], value])
        }
        await store.close()
      } finally {
        fs.rmSync(directory, { recursive: true })
      }
    }
  }
  console.log(`| thousands per second | ${chosen.map(([name]) => name).join(' | ')} |`)
  console.log(`|---|${'---|'.repeat(chosen.length)}`)
  for (const [figure, ofStores] of found) {
    const medians = chosen.map(([name]) => {
      return ofStores.has(name) ? median(ofStores.get(name)).toFixed(0) : '-'
    })
    console.log(`| ${figure} | ${medians.join(' | ')} |`)
  }
}

main()
