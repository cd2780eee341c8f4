'use strict'

// What a store does beyond the suite of abstract-level.

const assert = require('node:assert/strict')
const fs = require('node:fs')
const path = require('node:path')
const test = require('node:test')
const { GabionLevel } = require('..')
const { directory, open } = require('./helpers')

test('a store that is open is locked, and says so', async t => {
  const db = await open(t)
  const other = new GabionLevel(db.location)
  await assert.rejects(other.open(), error => {
    assert.equal(error.code, 'LEVEL_DATABASE_NOT_OPEN')
    assert.equal(error.cause.code, 'LEVEL_LOCKED')
    assert.match(error.cause.message, /store/)
    return true
  })
  await db.close()
  await other.open()
  await other.close()
})

test('options reach the store by their names', async t => {
  const db = await open(t, { engine: 'flex', memoryBytesMax: '64MiB', durability: 'buffered' })
  assert.equal((await db.stats()).durability, 'buffered')
  const wrong = new GabionLevel(path.join(directory(t), 'store'), { memoryBytesMax: 'much' })
  await assert.rejects(wrong.open(), error => {
    assert.equal(error.cause.code, 'LEVEL_INVALID_OPTION')
    assert.match(error.cause.message, /memory_bytes_max/)
    return true
  })
  await wrong.open({ memoryBytesMax: 64 << 20, compression: false })
  await wrong.close()
})

test('engines without order or snapshots are refused', async t => {
  for (const engine of ['scmkv', 'sptree']) {
    const location = path.join(directory(t), 'store')
    const db = new GabionLevel(location, { engine, poolBytes: '64MiB' })
    await assert.rejects(db.open(), error => {
      assert.equal(error.cause.code, 'LEVEL_NOT_SUPPORTED')
      assert.match(error.cause.message, new RegExp(engine))
      return true
    })
    assert.ok(!fs.existsSync(location))
  }
})

test('a store may be opened for reading only, by several at once', async t => {
  const db = await open(t)
  await db.put('a', '1')
  await db.close()
  const readers = [0, 1].map(() => new GabionLevel(db.location, { readOnly: true }))
  for (const reader of readers) {
    assert.equal(await reader.get('a'), '1')
    const refused = { code: 'LEVEL_READ_ONLY' }
    await assert.rejects(reader.put('a', '2'), refused)
    await assert.rejects(reader.batch().del('a').write(), refused)
    await assert.rejects(reader.clear(), refused)
    await assert.rejects(reader.transaction(tx => tx.del('a')), refused)
  }
  for (const reader of readers) await reader.close()
  const none = new GabionLevel(`${db.location} elsewhere`, { readOnly: true })
  await assert.rejects(none.open(), error => error.cause.code === 'LEVEL_NOT_A_STORE')
})

test('the last of several writes that nobody waited for wins', async t => {
  const db = await open(t)
  const writes = []
  for (let i = 0; i < 300; i++) {
    writes.push(db.put('key', String(i)))
    if (i % 7 === 0) writes.push(db.batch([{ type: 'put', key: 'key', value: `batch ${i}` }]))
    if (i % 11 === 0) writes.push(db.del('key'))
    if (i % 50 === 0) writes.push(db.clear())
    if (i % 60 === 0) await undefined
  }
  await Promise.all(writes)
  assert.equal(await db.get('key'), '299')
  writes.push(db.put('gone', '1'), db.clear(), db.put('left', '1'))
  await Promise.all(writes)
  assert.deepEqual(await db.keys().all(), ['left'])
})

test('what is given may be changed at once', async t => {
  const db = await open(t, { keyEncoding: 'view', valueEncoding: 'buffer' })
  const key = Uint8Array.of(1)
  const value = Buffer.from('granite')
  const put = db.put(key, value)
  key[0] = 2
  value.fill(0)
  await put
  const batch = db.batch().put(key, value)
  value.fill(1)
  key[0] = 1
  const read = db.get(key)
  key[0] = 3
  await batch.write()
  assert.equal(String(await read), 'granite')
  assert.deepEqual(await db.get(Uint8Array.of(2)), Buffer.alloc(7))
})

test('what is got may be changed', async t => {
  const db = await open(t, { valueEncoding: 'buffer' })
  await db.batch(['a', 'b', 'c'].map(key => ({ type: 'put', key, value: Buffer.from(key) })))
  const [a, b, c] = await db.getMany(['a', 'b', 'c'])
  a.fill(0)
  b.fill(0)
  assert.equal(String(c), 'c')
  assert.deepEqual((await db.getMany(['a', 'b', 'c'])).map(String), ['a', 'b', 'c'])
  for (const pair of await db.iterator().all()) pair[1].fill(0)
  assert.deepEqual((await db.values().all()).map(String), ['a', 'b', 'c'])
})

test('one write that cannot be fails alone', async t => {
  const db = await open(t)
  const long = 'x'.repeat(70000)
  const writes = [
    db.put('a', '1'),
    db.put(long, '1'),
    db.batch([{ type: 'put', key: 'in', value: '1' }, { type: 'put', key: long, value: '1' }]),
    db.put('b', '2'),
    db.del(long),
    db.batch([{ type: 'put', key: 'c', value: '3' }])
  ]
  const results = await Promise.allSettled(writes)
  const codes = results.map(result => result.reason?.code)
  const limit = 'LEVEL_LIMIT'
  assert.deepEqual(codes, [undefined, limit, limit, undefined, limit, undefined])
  assert.match(results[1].reason.message, /70000 bytes/)
  assert.deepEqual(await db.keys().all(), ['a', 'b', 'c'])
})

test('values of all sizes come back', async t => {
  const db = await open(t, { valueEncoding: 'buffer' })
  const sizes = [0, 1, 1000, 4095, 33000, 100000, 5 << 20, 3]
  const value = size => Buffer.alloc(size, `${size}`)
  await Promise.all(sizes.map(size => db.put(`${size}`, value(size))))
  const check = found => sizes.forEach((size, i) => assert.ok(found[i].equals(value(size))))
  check(await db.getMany(sizes.map(String)))
  check(await Promise.all(sizes.map(size => db.get(`${size}`))))
  check(sizes.map(size => db.getSync(`${size}`)))
  const found = new Map(await db.iterator().all())
  check(sizes.map(size => found.get(`${size}`)))
  const texts = await db.getMany(sizes.map(String), { valueEncoding: 'utf8' })
  sizes.forEach((size, i) => assert.equal(texts[i], value(size).toString()))
  assert.equal((await db.getMany(['1', 'none', '3']))[1], undefined)
})

test('a write with sync is on the medium', async t => {
  const db = await open(t, { durability: 'buffered' })
  const syncs = async () => (await db.stats()).syncs
  const before = await syncs()
  await db.put('a', '1')
  assert.equal(await syncs(), before)
  const writes = [
    () => db.put('a', '2', { sync: true }),
    () => db.del('a', { sync: true }),
    () => db.batch([{ type: 'put', key: 'b', value: '1' }], { sync: true }),
    () => db.batch().put('b', '2').write({ sync: true }),
    () => db.clear({ sync: true }),
    async () => {
      await db.put('c', '1')
      await db.clear({ sync: true, limit: 1 })
    },
    async () => {
      await db.put('c', '1')
      await db.persist()
    },
    () => db.transaction(tx => tx.put('d', '1'), { sync: true })
  ]
  for (const write of writes) {
    const before = await syncs()
    await write()
    assert.ok(await syncs() > before, String(write))
  }
})

test('a damaged file is told as such', async t => {
  const db = await open(t, { compression: 'none' })
  for (let i = 0; i < 1000; i++) db.put(`${i}`, 'granite'.repeat(10))
  await db.flush()
  await db.close()
  let damaged = 0
  for (const name of fs.readdirSync(db.location, { recursive: true })) {
    const file = path.join(db.location, name)
    if (!fs.statSync(file).isFile()) continue
    const bytes = fs.readFileSync(file)
    const at = bytes.indexOf('granite')
    if (at === -1) continue
    bytes[at] ^= 1
    fs.writeFileSync(file, bytes)
    damaged++
  }
  assert.notEqual(damaged, 0)
  await assert.rejects((async () => {
    await db.open()
    await db.iterator().all()
  })(), error => {
    const damage = error.code === 'LEVEL_CORRUPTION' ? error : error.cause
    assert.equal(damage.code, 'LEVEL_CORRUPTION')
    assert.match(damage.message, /gabion check/)
    return true
  })
})

test('maintenance', async t => {
  const db = await open(t)
  for (let i = 0; i < 100; i++) db.put(`${i}`, 'x'.repeat(100))
  await db.flush()
  await db.persist()
  await db.compactRange('0', '5')
  await db.compactRange('9', '0')
  await db.compactRange(Buffer.from('0'), Buffer.from('9'), { keyEncoding: 'buffer' })
  const copied = path.join(directory(t), 'copy')
  await db.checkpoint(copied)
  const copy = new GabionLevel(copied)
  const stats = await db.stats()
  // Those of one turn of the event loop are one.
  assert.equal(stats.writes, 1)
  assert.ok(stats.tables >= 1)
  assert.deepEqual(await copy.iterator().all(), await db.iterator().all())
  await copy.close()
  await GabionLevel.destroy(copied)
  await assert.rejects(copy.open({ createIfMissing: false }), error => {
    return error.cause.code === 'LEVEL_NOT_A_STORE' || /does not exist/.test(error.cause.message)
  })
  await db.close()
  await assert.rejects(db.stats(), { code: 'LEVEL_DATABASE_NOT_OPEN' })
})

test('what the manifest promises is there', async t => {
  const db = await open(t)
  for (const method of Object.keys(db.supports.additionalMethods)) {
    assert.equal(typeof db[method], 'function', method)
  }
  // Maintenance waits for an open that has begun.
  const early = new GabionLevel(path.join(directory(t), 'store'))
  assert.equal((await early.stats()).writes, 0)
  await early.close()
  assert.throws(() => new GabionLevel(''), TypeError)
  await assert.rejects(db.transaction('no function'), TypeError)
})

test('reads of a snapshot go on when it is closed', async t => {
  const db = await open(t)
  await db.put('a', 'old')
  const snapshot = db.snapshot()
  await db.put('a', 'new')
  const asked = [
    db.has('a', { snapshot }), db.hasMany(['a', 'b'], { snapshot }), db.get('a', { snapshot })
  ]
  await snapshot.close()
  assert.deepEqual(await Promise.all(asked), [true, [true, false], 'old'])
})

test('a close waits for what is under way', async t => {
  const db = await open(t)
  await db.batch(Array.from({ length: 999 }, (_, i) => ({ type: 'put', key: `${i}`, value: 'old' })))
  const asked = []
  for (let i = 0; i < 1000; i++) asked.push(db.put(`new ${i}`, 'value'), db.get(`${i}`))
  const iterators = [db.iterator(), db.keys(), db.values({ reverse: true })]
  asked.push(...iterators.map(iterator => iterator.next()), db.clear({ gte: '9', lt: ':' }))
  const snapshot = db.snapshot()
  const closed = db.close()
  const results = await Promise.allSettled(asked)
  await closed
  assert.equal(results.filter(result => result.status === 'rejected').length, 0)
  for (const iterator of iterators) {
    await assert.rejects(iterator.next(), { code: 'LEVEL_ITERATOR_NOT_OPEN' })
  }
  await assert.rejects(db.get('1'), { code: 'LEVEL_DATABASE_NOT_OPEN' })
  assert.throws(() => db.getSync('1'), { code: 'LEVEL_DATABASE_NOT_OPEN' })
  await db.open()
  assert.equal((await db.keys({ gt: 'new', lt: 'new~' }).all()).length, 1000)
  assert.equal((await db.keys({ gte: '9', lt: ':' }).all()).length, 0)
  await assert.rejects(db.get('1', { snapshot }), { code: 'LEVEL_SNAPSHOT_NOT_OPEN' })
})
