'use strict'

// Calls in any order, also wrong ones: each ends with an answer or an error with a code, none ends
// the process.

const assert = require('node:assert/strict')
const path = require('node:path')
const test = require('node:test')
const { GabionLevel } = require('..')
const { directory, numbers } = require('./helpers')

const CALLS = 3000

// Things that calls make, and that later calls use, in whatever state they are.
class Things {
  #random
  #of = new Map()

  constructor (random) {
    this.#random = random
  }

  add (kind, thing) {
    const things = this.#of.get(kind) ?? []
    things[this.#random(6)] = thing
    this.#of.set(kind, things)
  }

  any (kind) {
    return this.#of.get(kind)?.[this.#random(6)]
  }
}

function calls (db, things, random) {
  const key = () => `key ${random(20)}`
  const snapshot = () => random(3) === 0 ? things.any('snapshot') : undefined
  const range = () => ({ gte: key(), limit: random(3) === 0 ? random(5) : -1, reverse: random(2) === 0 })
  // What a database and a transaction have.
  const common = it => [
    () => it.put(key(), 'x'.repeat(random(3) === 0 ? random(70000) : 9), { sync: random(40) === 0 }),
    () => it.put('x'.repeat(70000), '1'),
    () => it.del(key()),
    () => it.get(key(), { snapshot: snapshot() }),
    () => it.getSync(key(), { snapshot: snapshot() }),
    () => it.getMany([key(), key()], { snapshot: snapshot() }),
    () => it.has(key(), { snapshot: snapshot() }),
    () => it.batch([{ type: 'put', key: key(), value: '1' }, { type: 'del', key: key() }]),
    () => it.clear({ ...range(), snapshot: snapshot() }),
    () => things.add('batch', it.batch()),
    () => things.add('iterator', it.iterator({ ...range(), snapshot: snapshot() })),
    () => things.add('iterator', it.keys(range())),
    () => it.sublevel('some').put(key(), '1')
  ]
  return [
    ...common(db),
    ...common(things.any('transaction') ?? db),
    () => things.any('iterator')?.next(),
    () => things.any('iterator')?.nextv(random(9)),
    () => things.any('iterator')?.seek(key()),
    () => things.any('iterator')?.close(),
    () => things.any('batch')?.put(key(), '1').del(key()),
    () => things.any('batch')?.clear(),
    () => things.any('batch')?.write(),
    () => things.any('batch')?.close(),
    () => things.add('snapshot', db.snapshot()),
    () => things.any('snapshot')?.close(),
    () => db.transaction(async own => {
      things.add('transaction', own)
      await own.put(key(), await own.get(key()) ?? 'none')
      for (let turn = random(10); turn > 0; turn--) await new Promise(setImmediate)
      if (random(3) === 0) throw Object.assign(new Error('no'), { code: 'OWN' })
    }, { attempts: 2 }),
    () => things.any('transaction')?.close(),
    () => random(20) === 0 ? db.persist() : db.stats(),
    () => random(20) === 0 ? db.flush() : undefined,
    () => random(20) === 0 ? db.compactRange(key(), key()) : undefined,
    () => random(8) === 0 ? db.close() : db.open(),
    () => db.open()
  ]
}

for (const options of [{}, { multithreading: true }, { engine: 'flex' }]) {
  test(`calls in wrong order: ${JSON.stringify(options)}`, async t => {
    const dbs = []
    const made = directory(t, () => Promise.all(dbs.map(db => db.close())))
    const seed = 7
    const random = numbers(seed)
    const things = new Things(random)
    // With multithreading the two are one store; otherwise one of them is refused at times.
    for (let i = 0; i < 2; i++) dbs.push(new GabionLevel(path.join(made, 'store'), options))
    const codes = new Map()
    const asked = []
    for (let i = 0; i < CALLS; i++) {
      const possible = calls(dbs[random(2)], things, random)
      const call = possible[random(possible.length)]
      const done = (async () => call())().catch(error => {
        assert.match(error.code ?? '', /^(LEVEL_|OWN)/, `seed ${seed}, ${call}: ${error.stack}`)
        codes.set(error.code, 1 + (codes.get(error.code) ?? 0))
      })
      asked.push(done)
      if (random(4) === 0) await done
      if (random(50) === 0) await Promise.all(asked)
    }
    await Promise.all(asked)
    // It was as wild as it should be.
    for (const code of ['DATABASE', 'ITERATOR', 'BATCH', 'SNAPSHOT']) {
      assert.ok(codes.get(`LEVEL_${code}_NOT_OPEN`) > 5, `${code}: ${JSON.stringify([...codes])}`)
    }
    await Promise.all(dbs.map(db => db.close()))
    await dbs[0].open()
    await dbs[0].put('last', '1')
    assert.equal(await dbs[0].get('last'), '1')
  })
}
