'use strict'

// Iterators and clears beside naive twins.

const assert = require('node:assert/strict')
const test = require('node:test')
const { numbers, open } = require('./helpers')

function key (random) {
  return Array.from({ length: random(4) }, () => 'abcde'[random(5)]).join('')
}

// Some of the options of a range.
function drawn (random) {
  const options = {}
  if (random(2) === 0) options[['gt', 'gte'][random(2)]] = key(random)
  if (random(2) === 0) options[['lt', 'lte'][random(2)]] = key(random)
  if (random(2) === 0) options.reverse = true
  if (random(3) === 0) options.limit = random(30)
  if (random(3) === 0) options.highWaterMarkBytes = 1 + random(40)
  return options
}

// The keys of a sorted array that options choose.
function chosen (keys, { gt, gte, lt, lte, reverse, limit }, target) {
  let found = keys.filter(key => {
    return (gt === undefined || key > gt) && (gte === undefined || key >= gte) &&
      (lt === undefined || key < lt) && (lte === undefined || key <= lte)
  })
  if (reverse) found.reverse()
  if (target !== undefined) {
    const isInside = (gt === undefined || target > gt) && (gte === undefined || target >= gte) &&
      (lt === undefined || target < lt) && (lte === undefined || target <= lte)
    found = isInside ? found.filter(key => reverse ? key <= target : key >= target) : []
  }
  return found.slice(0, limit ?? Infinity)
}

async function read (iterator, random, step) {
  const items = []
  for (;;) {
    const size = random(3) * random(20)
    const page = size === 0 ? [await iterator.next()] : await iterator.nextv(size)
    if (page.length === 0 || page[0] === undefined) break
    items.push(...page)
    await step?.()
  }
  await iterator.close()
  return items
}

for (const engine of ['wip', 'flex']) {
  test(`iterators of ${engine} go as an array does`, async t => {
    const db = await open(t, { engine })
    for (let seed = 1; seed <= 60; seed++) {
      const random = numbers(seed)
      await db.clear()
      const keys = [...new Set(Array.from({ length: random(200) }, () => key(random)))].sort()
      await db.batch(keys.map(key => ({ type: 'put', key, value: `value of ${key}` })))
      for (let round = 0; round < 10; round++) {
        const options = drawn(random)
        const place = `seed ${seed}, round ${round}, ${JSON.stringify(options)}`
        const target = random(3) === 0 ? key(random) : undefined
        const iterator = db.iterator(options)
        if (target !== undefined) iterator.seek(target)
        // What is written meanwhile it does not see.
        const others = random(2) === 0 ? undefined : () => db.put(key(random), 'later')
        const pairs = await read(iterator, random, others)
        const expected = chosen(keys, options, target)
        assert.deepEqual(pairs, expected.map(key => [key, `value of ${key}`]), place)
        if (others !== undefined) break
        assert.deepEqual(await read(db.keys(options), random), chosen(keys, options), place)
      }
    }
  })

  test(`clears of ${engine} delete what an iterator shows`, async t => {
    const db = await open(t, { engine })
    for (let seed = 1; seed <= 60; seed++) {
      const random = numbers(seed)
      await db.clear()
      const keys = [...new Set(Array.from({ length: random(200) }, () => key(random)))].sort()
      await db.batch(keys.map(key => ({ type: 'put', key, value: 'old' })))
      const snapshot = random(2) === 0 ? db.snapshot() : undefined
      const later = Array.from({ length: random(20) }, () => `${key(random)}!`)
      await db.batch(later.map(key => ({ type: 'put', key, value: 'new' })))
      const options = drawn(random)
      await db.clear({ ...options, snapshot })
      await snapshot?.close()
      const all = [...new Set([...keys, ...later])].sort()
      const gone = new Set(chosen(snapshot === undefined ? all : keys, options))
      const left = all.filter(key => !gone.has(key))
      assert.deepEqual(await db.keys().all(), left, `seed ${seed}, ${JSON.stringify(options)}`)
    }
  })
}

test('a long range is read page by page', async t => {
  const db = await open(t)
  const count = 20000
  const name = i => String(i).padStart(6, '0')
  await db.batch(Array.from({ length: count }, (_, i) => ({ type: 'put', key: name(i), value: '' })))
  let at = 0
  for await (const [key, value] of db.iterator()) {
    assert.equal(key, name(at++))
    assert.equal(value, '')
  }
  assert.equal(at, count)
  for await (const key of db.keys({ reverse: true })) assert.equal(key, name(--at))
  assert.equal(at, 0)
  assert.equal((await db.iterator({ keys: false, values: false }).all()).length, count)
  const iterator = db.iterator({ highWaterMarkBytes: 100 })
  assert.ok((await iterator.nextv(1000)).length < 20)
  await iterator.close()
})

test('a signal ends an iterator', async t => {
  const db = await open(t)
  await db.batch(Array.from({ length: 100 }, (_, i) => ({ type: 'put', key: `${i}`, value: '' })))
  const aborted = { code: 'LEVEL_ABORTED', name: 'AbortError' }
  const early = new AbortController()
  const iterator = db.iterator({ signal: early.signal })
  await iterator.next()
  early.abort()
  await assert.rejects(iterator.next(), aborted)
  await iterator.close()
  const meanwhile = new AbortController()
  const keys = db.keys({ signal: meanwhile.signal })
  const next = keys.next()
  meanwhile.abort()
  await assert.rejects(next, aborted)
  await keys.close()
})
