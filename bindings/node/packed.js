'use strict'

// Requests and answers as bytes; src/packed.rs has the table of what they are.

const ModuleError = require('module-error')

const PUT = 0
const DELETE = 1
const BATCH = 2

const BYTES_FIRST = 16 << 10

// A buffer that has become larger than this is not kept for what comes next.
const BYTES_KEPT_MAX = 1 << 20

// The length of a longer string in UTF-8 is counted; a shorter one is given room for the worst.
const STRING_GUESSED_MAX = 4096

// Requests on their way. What is added is copied: the caller may change it at once.
class Requests {
  #buffer
  #length = 0

  constructor (size = BYTES_FIRST) {
    this.#buffer = Buffer.allocUnsafeSlow(size)
  }

  get length () {
    return this.#length
  }

  // Takes back what was added since there were `length` bytes.
  cut (length) {
    this.#length = length
  }

  // The bytes, until something is added. There are no requests any more.
  take () {
    const taken = this.#buffer.subarray(0, this.#length)
    if (this.#buffer.length > BYTES_KEPT_MAX) this.#buffer = Buffer.allocUnsafeSlow(BYTES_FIRST)
    this.#length = 0
    return taken
  }

  put (key, value) {
    this.#kind(PUT)
    this.text(key)
    this.text(value)
  }

  del (key) {
    this.#kind(DELETE)
    this.text(key)
  }

  // The operations that follow take effect together.
  batch (count) {
    this.#kind(BATCH)
    const start = this.#room(4)
    this.#length = this.#buffer.writeUInt32LE(count, start)
  }

  // A string or a Uint8Array, with its length before it.
  text (data) {
    let size = data.length
    if (typeof data === 'string') {
      size = size > STRING_GUESSED_MAX ? Buffer.byteLength(data) : 3 * size
      const start = this.#room(4 + size)
      size = this.#buffer.write(data, start + 4)
      this.#length = this.#buffer.writeUInt32LE(size, start) + size
    } else {
      const start = this.#room(4 + size)
      this.#buffer.set(data, start + 4)
      this.#length = this.#buffer.writeUInt32LE(size, start) + size
    }
  }

  // Requests that are packed already.
  packed (requests) {
    const start = this.#room(requests.length)
    this.#buffer.set(requests, start)
    this.#length = start + requests.length
  }

  #kind (kind) {
    const start = this.#room(1)
    this.#length = this.#buffer.writeUInt8(kind, start)
  }

  // Makes room behind what is there, and returns where it begins.
  #room (size) {
    const needed = this.#length + size
    if (needed > this.#buffer.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(needed, 2 * this.#buffer.length))
      this.#buffer.copy(larger, 0, 0, this.#length)
      this.#buffer = larger
    }
    return this.#length
  }
}

// Texts in a buffer, one after the other.
class Texts {
  #buffer
  #at

  constructor (buffer, at = 0) {
    this.#buffer = buffer
    this.#at = at
  }

  get isAtEnd () {
    return this.#at >= this.#buffer.length
  }

  // The next answer: undefined for none. A failure is thrown.
  answer (format) {
    const length = this.#buffer.readInt32LE(this.#at)
    if (length >= 0) return this.text(format)
    this.#at += 4
    if (length === -1) return undefined
    const code = this.text('utf8')
    throw new ModuleError(this.text('utf8'), { code })
  }

  // The next text, as a string or as a buffer.
  text (format) {
    const buffer = this.#buffer
    const length = buffer.readUInt32LE(this.#at)
    const start = this.#at + 4
    const end = start + length
    this.#at = end
    if (format === 'utf8') return buffer.toString(undefined, start, end)
    // Who keeps a small part does not keep the whole. What nothing follows can be given away.
    if (end === buffer.length && 2 * length >= end) return buffer.subarray(start, end)
    const copy = Buffer.allocUnsafe(length)
    buffer.copy(copy, 0, start, end)
    return copy
  }
}

// Bytes of a key.
function bytes (data) {
  return typeof data === 'string' ? Buffer.from(data) : data
}

exports.Requests = Requests
exports.Texts = Texts
exports.bytes = bytes
