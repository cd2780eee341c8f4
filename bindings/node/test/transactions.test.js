'use strict'

const assert = require('node:assert/strict')
const test = require('node:test')
const { open } = require('./helpers')

test('counts that many increase at once are right', async t => {
  const db = await open(t, { valueEncoding: 'json' })
  let runs = 0
  const visit = () => db.transaction(async tx => {
    runs++
    const visits = (await tx.get('visits') ?? 0) + 1
    await tx.put('visits', visits)
    return visits
  })
  const counts = await Promise.all(Array.from({ length: 20 }, visit))
  assert.equal(await db.get('visits'), 20)
  assert.deepEqual(counts.sort((a, b) => a - b), Array.from({ length: 20 }, (_, i) => i + 1))
  assert.ok(runs > 20, 'there was no conflict')
})

test('attempts end with the conflict', async t => {
  const db = await open(t)
  let runs = 0
  const body = async tx => {
    runs++
    await tx.get('key')
    await db.put('key', String(runs))
    await tx.put('other', '1')
  }
  await assert.rejects(db.transaction(body, { attempts: 3 }), { code: 'LEVEL_CONFLICT' })
  assert.equal(runs, 3)
  assert.equal(await db.get('other'), undefined)
})

test('an error takes all back, and is not run again', async t => {
  const db = await open(t)
  let runs = 0
  const failed = db.transaction(async tx => {
    runs++
    await tx.put('key', '1')
    throw new Error('no')
  })
  await assert.rejects(failed, /^Error: no$/)
  assert.equal(runs, 1)
  assert.equal(await db.get('key'), undefined)
})

test('a transaction is a database with its own writes', async t => {
  const db = await open(t)
  await db.batch(['a', 'b', 'c', 'd'].map(key => ({ type: 'put', key, value: 'old' })))
  await db.transaction(async tx => {
    await tx.put('e', 'new')
    await tx.del('a')
    await tx.batch().put('b', 'new').write()
    await tx.batch([{ type: 'del', key: 'c' }])
    assert.equal(tx.getSync('b'), 'new')
    assert.deepEqual(await tx.getMany(['a', 'b', 'd']), [undefined, 'new', 'old'])
    assert.deepEqual(await tx.hasMany(['a', 'b']), [false, true])
    assert.deepEqual(await tx.iterator().all(), [['b', 'new'], ['d', 'old'], ['e', 'new']])
    assert.deepEqual(await tx.keys({ reverse: true, limit: 2 }).all(), ['e', 'd'])
    const keys = tx.keys()
    assert.equal(await keys.next(), 'b')
    await tx.put('c', 'again')
    assert.equal(await keys.next(), 'c')
    await tx.clear({ limit: 1 })
    await tx.clear({ gt: 'd' })
    assert.deepEqual(await tx.keys().all(), ['c', 'd'])
    assert.deepEqual(await db.keys().all(), ['a', 'b', 'c', 'd'])
    const long = 'x'.repeat(70000)
    const batch = [{ type: 'put', key: 'f', value: '1' }, { type: 'put', key: long, value: '1' }]
    await assert.rejects(tx.batch(batch), { code: 'LEVEL_LIMIT' })
    assert.throws(() => tx.snapshot(), { code: 'LEVEL_NOT_SUPPORTED' })
  })
  assert.deepEqual(await db.iterator().all(), [['c', 'again'], ['d', 'old']])
})

test('what a transaction was asked for last is committed, too', async t => {
  const db = await open(t)
  await db.transaction(async tx => { tx.put('key', '1') })
  assert.equal(await db.get('key'), '1')
})

test('sublevels of a transaction and of its database are the same', async t => {
  const db = await open(t)
  const people = db.sublevel('people', { valueEncoding: 'json' })
  await people.put('ada', { age: 36 })
  await db.transaction(async tx => {
    const own = tx.sublevel('people', { valueEncoding: 'json' })
    assert.deepEqual(await own.get('ada'), { age: 36 })
    await own.put('ada', { age: 37 })
    await tx.batch([
      { type: 'put', key: 'grace', value: { age: 85 }, sublevel: people },
      { type: 'put', key: 'plain', value: '1' }
    ])
  })
  assert.deepEqual(await people.iterator().all(), [['ada', { age: 37 }], ['grace', { age: 85 }]])
  assert.equal(await db.get('plain'), '1')
  const other = await open(t)
  const foreign = [{ type: 'put', key: 'a', value: '1', sublevel: other.sublevel('people') }]
  await assert.rejects(db.batch(foreign), { code: 'LEVEL_INVALID_ARGUMENT' })
  const write = db.transaction(tx => tx.batch(foreign))
  await assert.rejects(write, { code: 'LEVEL_INVALID_ARGUMENT' })
})

test('nothing is done with a transaction after its end', async t => {
  const db = await open(t)
  let kept, iterator
  await db.transaction(async tx => {
    kept = tx
    iterator = tx.iterator()
    await iterator.next()
  })
  await assert.rejects(kept.put('a', '1'), { code: 'LEVEL_DATABASE_NOT_OPEN' })
  await assert.rejects(iterator.next(), { code: 'LEVEL_ITERATOR_NOT_OPEN' })
  await assert.rejects(kept.open(), { code: 'LEVEL_DATABASE_NOT_OPEN' })
  // A close of the store ends it, too.
  const cut = db.transaction(async tx => {
    await tx.put('a', '1')
    await db.close()
  })
  await assert.rejects(cut)
  await db.open()
  assert.equal(await db.get('a'), undefined)
})

test('isolation is an option', async t => {
  const db = await open(t)
  // What a serializable transaction has read may not change; a snapshot does not mind.
  const body = async tx => {
    await tx.get('read')
    await db.put('read', String(Math.random()))
    await tx.put('written', '1')
  }
  await db.transaction(body, { isolation: 'snapshot', attempts: 1 })
  await assert.rejects(db.transaction(body, { attempts: 1 }), { code: 'LEVEL_CONFLICT' })
  const wrong = db.transaction(body, { isolation: 'none' })
  await assert.rejects(wrong, { code: 'LEVEL_INVALID_OPTION' })
})
