'use strict'

const { AbstractSnapshot } = require('abstract-level')
const ModuleError = require('module-error')
const binding = require('./binding')
const { kNative } = require('./native')
const { known, settings } = require('./options')
const { transact } = require('./transaction')
const { ViewLevel } = require('./view-level')

class GabionLevel extends ViewLevel {
  #location
  #store = null

  constructor (location, options) {
    checkLocation(location)
    super({
      encodings: { buffer: true, utf8: true, view: true },
      has: true,
      getSync: true,
      createIfMissing: true,
      errorIfExists: true,
      explicitSnapshots: true,
      additionalMethods: {
        checkpoint: true,
        compactRange: true,
        flush: true,
        persist: true,
        stats: true,
        transaction: true
      },
      signals: { iterators: true }
    }, options)
    this.#location = location
  }

  get location () {
    return this.#location
  }

  async _open (options) {
    const { names, values } = settings(known(options))
    const isShared = options.multithreading === true
    this.#store = await binding.open(this.#location, names, values, isShared)
    this._begin(this.#store.view())
  }

  async _close () {
    await this._idle()
    return this.#store.close()
  }

  _snapshot (options) {
    return new GabionSnapshot(options, this.#store.snapshot(), () => this._beginReads())
  }

  // Brings a range into the best order that the engine knows.
  async compactRange (start, end, options) {
    return this.#whenOpen(() => {
      const encoding = this.keyEncoding(options?.keyEncoding)
      return this._compact({ gte: encoding.encode(start), lte: encoding.encode(end) })
    })
  }

  // Makes all that was written survive power loss.
  async persist () {
    return this.#whenOpen(() => this._afterWrites(() => this.#store.persist()))
  }

  // Brings what is in memory to where it stays.
  async flush () {
    return this.#whenOpen(() => this._afterWrites(() => this.#store.flush()))
  }

  // Writes a copy of the store to a directory that does not exist.
  async checkpoint (location) {
    checkLocation(location)
    return this.#whenOpen(() => this._afterWrites(() => this.#store.checkpoint(location)))
  }

  // Counts and sizes.
  async stats () {
    return this.#whenOpen(async () => JSON.parse(await this.#store.stats()))
  }

  // Runs a function with a transaction, and commits; again if somebody else was in the way.
  async transaction (body, options) {
    if (typeof body !== 'function') {
      throw new TypeError("The first argument 'body' must be a function")
    }
    return this.#whenOpen(() => transact(this, this.#store, body, options ?? {}))
  }

  async #whenOpen (call) {
    if (this.status === 'opening') return this.deferAsync(() => this.#whenOpen(call))
    if (this.status === 'open') return call()
    throw new ModuleError('Database is not open', { code: 'LEVEL_DATABASE_NOT_OPEN' })
  }

  // Removes the store in a directory.
  static async destroy (location) {
    checkLocation(location)
    return binding.destroy(location)
  }
}

class GabionSnapshot extends AbstractSnapshot {
  #beginReads

  constructor (options, snapshot, beginReads) {
    super(options)
    this[kNative] = snapshot
    this.#beginReads = beginReads
  }

  async _close () {
    // Those that were asked for keep what they need of it.
    this.#beginReads()
    this[kNative].close()
  }
}

function checkLocation (location) {
  if (typeof location !== 'string' || location === '') {
    throw new TypeError("The first argument 'location' must be a non-empty string")
  }
}

exports.GabionLevel = GabionLevel
