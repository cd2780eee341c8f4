'use strict'

// Transactions: databases for as long as a function runs.

const { setTimeout: pause } = require('node:timers/promises')
const ModuleError = require('module-error')
const { settings } = require('./options')
const { ViewLevel } = require('./view-level')

const ATTEMPTS_MAX = 100

// Pauses after a conflict grow up to this.
const PAUSE_MS_MAX = 20

const RETRIED = new Set(['LEVEL_CONFLICT', 'LEVEL_TRANSACTION_TOO_OLD'])

// The store as it was at the beginning, with the transaction's own writes.
class GabionTransaction extends ViewLevel {
  #db
  #isEnded = false

  constructor (db, view) {
    super({
      encodings: { buffer: true, utf8: true, view: true },
      has: true,
      getSync: true,
      implicitSnapshots: false,
      permanence: false,
      signals: { iterators: true }
    }, { keyEncoding: db.keyEncoding(), valueEncoding: db.valueEncoding() })
    this.#db = db
    this._begin(view)
  }

  // What a transaction reads ahead it depends on.
  get _readsAhead () {
    return false
  }

  // Batches take the sublevels of the database, too.
  _keyOf (operation) {
    const { key, keyEncoding, sublevel } = operation
    if (sublevel?.db === this.#db) return sublevel.prefixKey(key, keyEncoding, false)
    return super._keyOf(operation)
  }

  async _open () {
    if (this.#isEnded) {
      throw new ModuleError('The transaction has ended; begin another one', {
        code: 'LEVEL_TRANSACTION_NOT_OPEN'
      })
    }
  }

  async _close () {
    this.#isEnded = true
    return this._idle()
  }
}

// Runs a function with a transaction, and commits: again and again until nobody is in the way.
async function transact (db, store, body, { attempts = ATTEMPTS_MAX, sync, ...options }) {
  const { names, values } = settings(options)
  for (let attempt = 1; ; attempt++) {
    const view = store.begin(names, values)
    const transaction = new GabionTransaction(db, view)
    db.attachResource(transaction)
    try {
      await transaction.open()
      const result = await body(transaction)
      await transaction.close()
      await view.commit(sync === true)
      return result
    } catch (err) {
      await transaction.close()
      await view.rollback()
      if (!RETRIED.has(err?.code) || attempt >= attempts) throw err
    } finally {
      db.detachResource(transaction)
    }
    await pause(Math.random() * Math.min(attempt, PAUSE_MS_MAX))
  }
}

exports.transact = transact
