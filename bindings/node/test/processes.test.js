'use strict'

// Ends of processes and threads with open stores, and stores that threads share.

const assert = require('node:assert/strict')
const { spawnSync } = require('node:child_process')
const { once } = require('node:events')
const fs = require('node:fs')
const path = require('node:path')
const test = require('node:test')
const { Worker } = require('node:worker_threads')
const { GabionLevel } = require('..')
const { directory, open } = require('./helpers')

const SHARED = { multithreading: true }

// Runs a program with `db`, a store at `location`, and returns how it ended.
function run (location, program, ...flags) {
  const code = `
    const { GabionLevel } = require(${JSON.stringify(path.join(__dirname, '..'))})
    const location = ${JSON.stringify(location)}
    const open = () => new GabionLevel(location)
    async function main () { ${program} }
    main().catch(error => { console.error(error); process.exit(1) })
  `
  const { status, signal, stderr } = spawnSync(
    process.execPath, [...flags, '--eval', code], { encoding: 'utf8' }
  )
  return { status, signal, stderr }
}

for (const [name, end, expected] of [
  ['has nothing left to do', '', { status: 0, signal: null }],
  ['exits', 'process.exit(7)', { status: 7, signal: null }],
  ['exits in the middle of writes', 'db.put("late", "1"); process.exit(7)', { status: 7 }],
  ['is killed', 'process.kill(process.pid, "SIGKILL")', { status: null, signal: 'SIGKILL' }],
  ['throws', 'setImmediate(() => { throw new Error("thrown") })', { status: 1, signal: null }]
]) {
  test(`a process with an open store ${name}`, async t => {
    const location = path.join(directory(t), 'store')
    const ended = run(location, `
      const db = open()
      for (let i = 0; i < 500; i++) db.put('key ' + i, 'x'.repeat(i))
      await db.put('last', '1')
      const iterator = db.iterator()
      await iterator.next()
      db.snapshot()
      ${end}
    `)
    for (const [key, value] of Object.entries(expected)) {
      assert.equal(ended[key], value, ended.stderr)
    }
    const db = new GabionLevel(location)
    assert.equal((await db.keys({ lte: 'last', gte: 'key' }).all()).length, 501)
    await db.close()
  })
}

test('a store that is forgotten is closed by the collector', async t => {
  const location = path.join(directory(t), 'store')
  const ended = run(location, `
    const forget = async () => {
      const db = open()
      await db.put('key', 'value')
      await db.iterator().next()
    }
    await forget()
    for (let attempt = 0; attempt < 1000; attempt++) {
      gc()
      await new Promise(setImmediate)
      const db = open()
      try {
        await db.open()
        if (await db.get('key') !== 'value') throw new Error('the value is missing')
        return db.close()
      } catch (error) {
        if (error.cause?.code !== 'LEVEL_LOCKED') throw error
      }
    }
    throw new Error('the store is still open')
  `, '--expose-gc')
  assert.equal(ended.status, 0, ended.stderr)
})

async function work (location, options, own, count) {
  const worker = new Worker(path.join(__dirname, 'worker.js'), {
    workerData: { location, options, own, count }
  })
  const [[message]] = await Promise.all([once(worker, 'message'), once(worker, 'exit')])
  return message.code
}

test('threads share a store', async t => {
  const db = await open(t, SHARED)
  const workers = [0, 1, 2, 3].map(own => work(db.location, SHARED, own, 500))
  assert.deepEqual(await Promise.all(workers), [undefined, undefined, undefined, undefined])
  assert.equal((await db.keys().all()).length, 2000)
  assert.equal(await db.get('3-499'), '499')
  // A path that leads to the same directory is the same store.
  const link = `${path.dirname(db.location)}/link`
  fs.symlinkSync(path.dirname(db.location), link)
  const again = new GabionLevel(`${link}/store/`, SHARED)
  await again.put('again', 'yes')
  await db.close()
  assert.equal(await again.get('again'), 'yes')
  // While anybody has it, nobody has it alone.
  const alone = new GabionLevel(db.location)
  await assert.rejects(alone.open(), error => error.cause.code === 'LEVEL_LOCKED')
  await again.close()
  await alone.open()
  await assert.rejects(again.open(), error => error.cause.code === 'LEVEL_LOCKED')
  await alone.close()
})

test('who shares a store that is to be there makes none', async t => {
  const location = path.join(directory(t), 'store')
  const db = new GabionLevel(location, { ...SHARED, createIfMissing: false })
  await assert.rejects(db.open(), error => /does not exist/.test(error.cause.message))
  assert.ok(!fs.existsSync(location))
})

test('threads that do not share are refused', async t => {
  const db = await open(t)
  assert.equal(await work(db.location, {}, 0, 1), 'LEVEL_LOCKED')
  assert.equal(await work(db.location, SHARED, 0, 1), 'LEVEL_LOCKED')
})

test('those who share give the same options', async t => {
  const db = await open(t, { ...SHARED, memoryBytesMax: '64MiB' })
  const code = await work(db.location, SHARED, 0, 1)
  assert.equal(code, 'LEVEL_INVALID_OPTION')
  assert.equal(await work(db.location, { ...SHARED, memoryBytesMax: '64MiB' }, 0, 1), undefined)
})

for (const options of [{}, SHARED]) {
  test(`a thread that is terminated leaves its store: ${JSON.stringify(options)}`, async t => {
    const location = path.join(directory(t), 'store')
    for (let round = 0; round < 5; round++) {
      const worker = new Worker(path.join(__dirname, 'worker.js'), {
        workerData: { location, options, own: round, count: 100, isLeftOpen: true }
      })
      await once(worker, 'message')
      await worker.terminate()
      const db = new GabionLevel(location)
      assert.equal(await db.get(`${round}-99`), '99')
      await db.close()
    }
  })
}

test('opens and closes by several threads and none do not get in each other\'s way', async t => {
  const location = path.join(directory(t), 'store')
  const workers = Array.from({ length: 8 }, (_, own) => work(location, SHARED, own, 20))
  for (let round = 0; round < 20; round++) {
    const db = new GabionLevel(location, SHARED)
    await db.put('round', String(round))
    await db.close()
  }
  assert.deepEqual(await Promise.all(workers), Array(8).fill(undefined))
  const db = new GabionLevel(location)
  assert.equal((await db.keys().all()).length, 161)
  await db.close()
})
