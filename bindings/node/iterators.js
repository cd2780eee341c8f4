'use strict'

// Iterators: they read pages of pairs, and decode a pair when it is asked for.

const { AbstractIterator, AbstractKeyIterator, AbstractValueIterator } = require('abstract-level')
const ModuleError = require('module-error')
const { kNative } = require('./native')
const { Texts, bytes } = require('./packed')
const { range, KEYS, VALUES } = require('./range')

// A first page has a few pairs, each later one four times as many.
const PAGE_PAIRS_FIRST = 16
const PAGE_PAIRS_MAX = 4096

// What a page has of bytes, unless the option `highWaterMarkBytes` says otherwise.
const PAGE_BYTES_MAX = 64 << 10

const PAIRS = KEYS | VALUES

const NOTHING = new Texts(Buffer.alloc(0))

class AbortError extends ModuleError {
  constructor (cause) {
    super('The iterator was aborted by its signal', { code: 'LEVEL_ABORTED', cause })
  }

  get name () {
    return 'AbortError'
  }
}

// What is wanted of pairs. Who wants neither key nor value counts them.
function wanted ({ keys, values }) {
  if (values === false) return KEYS
  return keys === false ? VALUES : PAIRS
}

// An iterator over what `bits` and `take` choose of a pair.
function iterator (Base, bits, take) {
  return class extends Base {
    #pairs
    #page = NOTHING
    #isLast = false
    #firstPairs
    #pagePairs
    #pageBytes
    #signal
    #bits
    #keys
    #values

    constructor (db, view, options, readsAhead) {
      super(db, options)
      const bounds = range(options)
      this.#bits = bits === PAIRS ? wanted(options) : bits
      this.#keys = options.keyEncoding
      this.#values = options.valueEncoding
      this.#signal = options.signal ?? null
      this.#firstPairs = readsAhead ? PAGE_PAIRS_FIRST : 1
      this.#pagePairs = this.#firstPairs
      const most = options.highWaterMarkBytes
      this.#pageBytes = Number.isInteger(most) ? Math.min(Math.max(most, 1), 1 << 30) : PAGE_BYTES_MAX
      this.#pairs = view.pairs(
        bounds.bits | this.#bits, bounds.lower, bounds.upper, options.snapshot?.[kNative]
      )
    }

    async _next () {
      if (this.#page.isAtEnd) {
        if (this.#isLast) return undefined
        await this.#turn(this.#pagePairs)
        if (this.#firstPairs > 1) this.#pagePairs = Math.min(4 * this.#pagePairs, PAGE_PAIRS_MAX)
        if (this.#page.isAtEnd) return undefined
      }
      return this.#take()
    }

    async _nextv (size) {
      if (this.#page.isAtEnd && !this.#isLast) await this.#turn(size)
      const items = []
      while (items.length < size && !this.#page.isAtEnd) items.push(this.#take())
      return items
    }

    _seek (target) {
      this.#pairs.seek(bytes(target))
      this.#page = NOTHING
      this.#isLast = false
      this.#pagePairs = this.#firstPairs
    }

    async _close () {
      this.#page = NOTHING
      this.#isLast = true
      this.#pairs.close()
    }

    // Reads the next page, of up to `size` pairs.
    async #turn (size) {
      const count = Math.min(size, this.limit - this.count, 0xffffffff)
      const page = await this.#pairs.next(count, this.#pageBytes)
      if (this.#signal?.aborted) throw new AbortError(this.#signal.reason)
      this.#isLast = page[0] === 1
      this.#page = new Texts(page, 1)
    }

    #take () {
      return take(this.#page, this.#bits, this.#keys, this.#values)
    }
  }
}

exports.GabionIterator = iterator(AbstractIterator, PAIRS, (page, bits, keys, values) => {
  const key = bits & KEYS ? page.text(keys) : undefined
  return [key, bits & VALUES ? page.text(values) : undefined]
})

exports.GabionKeyIterator = iterator(AbstractKeyIterator, KEYS, (page, bits, keys) => {
  return page.text(keys)
})

exports.GabionValueIterator = iterator(AbstractValueIterator, VALUES, (page, bits, keys, values) => {
  return page.text(values)
})
