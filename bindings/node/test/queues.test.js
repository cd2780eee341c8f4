'use strict'

// Which calls wait for which, with a native library that does nothing.

const assert = require('node:assert/strict')
const test = require('node:test')
const { Reads, Writes } = require('../queues')

// A promise, and what fulfils it.
function gate () {
  let open
  const opened = new Promise(resolve => { open = resolve })
  return { opened, open }
}

test('writes gather while others are under way', async () => {
  const written = []
  const first = gate()
  const writes = new Writes((units, isSync) => {
    written.push([units.length, isSync])
    return written.length === 1 ? first.opened : null
  })
  const length = 1 + 4 + 1 + 4 + 1
  const asked = [writes.put('a', '1', false), writes.put('b', '1', false)]
  await new Promise(setImmediate)
  asked.push(writes.put('c', '1', false))
  await new Promise(setImmediate)
  asked.push(writes.put('d', '1', true))
  assert.deepEqual(written, [[2 * length, false]])
  first.open(null)
  await Promise.all(asked)
  assert.deepEqual(written, [[2 * length, false], [2 * length, true]])
})

test('what writes in its own way holds up later writes, other calls do not', async () => {
  const order = []
  const writes = new Writes(() => {
    order.push('write')
    return null
  })
  writes.put('a', '1', false)
  writes.after(() => {
    order.push('after')
    return new Promise(() => {})
  })
  await writes.put('a', '2', false)
  assert.deepEqual(order, ['write', 'after', 'write'])
  const clear = gate()
  const cleared = writes.other(() => {
    order.push('clear')
    return clear.opened
  })
  const put = writes.put('a', '3', false)
  await new Promise(setImmediate)
  assert.deepEqual(order.slice(3), ['clear'])
  clear.open('cleared')
  assert.equal(await cleared, 'cleared')
  await put
  assert.deepEqual(order.slice(3), ['clear', 'write'])
})

test('failures reach those who asked, and nobody else', async () => {
  const writes = new Writes(async () => { throw new Error('no room') })
  await assert.rejects(writes.put('a', '1', false), /no room/)
  await assert.rejects(writes.other(async () => { throw new Error('no clear') }), /no clear/)
  await assert.rejects(writes.after(() => { throw new Error('no call') }), /no call/)
  // What cannot be packed is not written.
  const packed = []
  const others = new Writes(units => {
    packed.push(units.length)
    return null
  })
  const wrong = { type: 'put', key: 'a', get value () { throw new Error('no value') } }
  const batch = others.batch([{ type: 'del', key: 'a' }, wrong], false)
  await others.del('b', false)
  await assert.rejects(batch, /no value/)
  assert.deepEqual(packed, [1 + 4 + 1])
})

test('reads of one turn are one, up to a number of them', async () => {
  const asked = []
  const reads = new Reads(async (keys, snapshot) => {
    asked.push([keys.length / 5, snapshot])
    return Buffer.alloc(keys.length / 5 * 4, 0xff)
  })
  const many = Array.from({ length: 600 }, () => reads.one('k', 'utf8'))
  many.push(reads.one('k', 'utf8', 'a moment'), reads.many(['k', 'k'], 'utf8', 'a moment'))
  await reads.idle()
  assert.deepEqual(asked, [
    [256, undefined], [256, undefined], [88, undefined], [3, 'a moment']
  ])
  assert.deepEqual((await Promise.all(many)).flat(), Array(603).fill(undefined))
})
