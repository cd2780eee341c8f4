'use strict'

// What a store and a transaction have in common: a view of the native library behind the private
// methods of abstract-level.

const { AbstractLevel, AbstractChainedBatch } = require('abstract-level')
const ModuleError = require('module-error')
const { GabionIterator, GabionKeyIterator, GabionValueIterator } = require('./iterators')
const { kNative } = require('./native')
const { Requests, bytes } = require('./packed')
const { Reads, Writes } = require('./queues')
const { range, SYNC } = require('./range')

// What a chained batch has room for at first.
const CHAINED_BYTES_FIRST = 1024

class ViewLevel extends AbstractLevel {
  #view = null
  #values = null
  #presences = null
  #writes = null

  // Begins to read and write by a view of the native library.
  _begin (view) {
    this.#view = view
    this.#values = new Reads((keys, snapshot) => view.read(keys, false, snapshot))
    this.#presences = new Reads((keys, snapshot) => view.read(keys, true, snapshot))
    this.#writes = new Writes((units, isSync) => view.write(units, isSync))
  }

  // Waits until nothing is read or written.
  async _idle () {
    await Promise.all([this.#values.idle(), this.#presences.idle(), this._afterWrites(() => {})])
  }

  // Begins with the reads that were asked for.
  _beginReads () {
    this.#values.begin()
    this.#presences.begin()
  }

  // Does something after the writes that were asked for.
  _afterWrites (call) {
    return this.#writes.after(call)
  }

  // Whether iterators may read what was not asked for yet.
  get _readsAhead () {
    return true
  }

  // The key of an operation of a batch, also of one that is for a sublevel of another database.
  _keyOf ({ key, keyEncoding, sublevel }) {
    if (sublevel == null) return key
    throw new ModuleError('The sublevel of an operation belongs to another database', {
      code: 'LEVEL_INVALID_ARGUMENT'
    })
  }

  _get (key, options) {
    return this.#values.one(key, options.valueEncoding, options.snapshot?.[kNative])
  }

  _getSync (key, options) {
    const isText = options.valueEncoding === 'utf8'
    return this.#view.getSync(bytes(key), isText, options.snapshot?.[kNative]) ?? undefined
  }

  _getMany (keys, options) {
    return this.#values.many(keys, options.valueEncoding, options.snapshot?.[kNative])
  }

  async _has (key, options) {
    return await this.#presences.one(key, 'utf8', options.snapshot?.[kNative]) !== undefined
  }

  async _hasMany (keys, options) {
    const found = await this.#presences.many(keys, 'utf8', options.snapshot?.[kNative])
    return found.map(one => one !== undefined)
  }

  _put (key, value, options) {
    return this.#writes.put(key, value, options.sync === true)
  }

  _del (key, options) {
    return this.#writes.del(key, options.sync === true)
  }

  async _batch (operations, options) {
    for (const operation of operations) operation.key = this._keyOf(operation)
    return this.#writes.batch(operations, options.sync === true)
  }

  _chainedBatch () {
    const writes = this.#writes
    return new GabionChainedBatch(this, (...batch) => writes.packed(...batch))
  }

  async _clear (options) {
    const { bits, lower, upper } = range(options)
    const limit = options.limit === -1 ? undefined : Math.min(options.limit, 0xffffffff)
    const sync = options.sync === true ? SYNC : 0
    const snapshot = options.snapshot?.[kNative]
    return this.#writes.other(() => {
      return this.#view.clear(bits | sync, lower, upper, limit, snapshot)
    })
  }

  _compact (options) {
    const { bits, lower, upper } = range(options)
    return this.#view.compact(bits, lower, upper)
  }

  _iterator (options) {
    return new GabionIterator(this, this.#view, options, this._readsAhead)
  }

  _keys (options) {
    return new GabionKeyIterator(this, this.#view, options, this._readsAhead)
  }

  _values (options) {
    return new GabionValueIterator(this, this.#view, options, this._readsAhead)
  }
}

class GabionChainedBatch extends AbstractChainedBatch {
  #write
  #requests = new Requests(CHAINED_BYTES_FIRST)
  #count = 0

  constructor (db, write) {
    super(db)
    this.#write = write
  }

  _put (key, value) {
    this.#requests.put(key, value)
    this.#count++
  }

  _del (key) {
    this.#requests.del(key)
    this.#count++
  }

  _clear () {
    this.#requests.cut(0)
    this.#count = 0
  }

  async _write (options) {
    return this.#write(this.#count, this.#requests.take(), options.sync === true)
  }

  async _close () {
    this.#requests = null
  }
}

exports.ViewLevel = ViewLevel
