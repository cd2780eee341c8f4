'use strict'

// What is asked for in one turn of the event loop crosses to the native library at once.

const { Requests, Texts } = require('./packed')

// More reads than these are done by several threads.
const READS_MAX = 256

// Reads of values, or of whether keys are there.
class Reads {
  #read
  #requests = new Requests()
  #waiting = []
  #count = 0
  #snapshot
  #running = new Set()

  // `read` takes packed keys and a snapshot, and promises packed answers.
  constructor (read) {
    this.#read = read
  }

  // Promises what is there of a key.
  one (key, format, snapshot) {
    return new Promise((resolve, reject) => {
      this.#add(snapshot, 1, { resolve, reject, tell: texts => texts.answer(format) }, () => {
        this.#requests.text(key)
      })
    })
  }

  // Promises what is there of each key.
  many (keys, format, snapshot) {
    return new Promise((resolve, reject) => {
      const tell = texts => {
        const found = new Array(keys.length)
        let failure
        for (let i = 0; i < keys.length; i++) {
          try {
            found[i] = texts.answer(format)
          } catch (err) {
            failure ??= err
          }
        }
        if (failure !== undefined) throw failure
        return found
      }
      this.#add(snapshot, keys.length, { resolve, reject, tell }, () => {
        for (const key of keys) this.#requests.text(key)
      })
    })
  }

  // Waits until nothing is asked.
  async idle () {
    this.begin()
    await Promise.all(this.#running)
  }

  #add (snapshot, count, asked, pack) {
    if (this.#count >= READS_MAX || snapshot !== this.#snapshot) this.begin()
    const before = this.#requests.length
    try {
      pack()
    } catch (err) {
      this.#requests.cut(before)
      throw err
    }
    if (this.#waiting.length === 0) queueMicrotask(() => this.begin())
    this.#snapshot = snapshot
    this.#count += count
    this.#waiting.push(asked)
  }

  // Begins with what was asked.
  begin () {
    const waiting = this.#waiting
    if (waiting.length === 0) return
    const snapshot = this.#snapshot
    this.#waiting = []
    this.#count = 0
    this.#snapshot = undefined
    const running = this.#settle(waiting, snapshot)
    this.#running.add(running)
    running.then(() => this.#running.delete(running))
  }

  async #settle (waiting, snapshot) {
    try {
      const texts = new Texts(await this.#read(this.#requests.take(), snapshot))
      for (const { resolve, reject, tell } of waiting) {
        try {
          resolve(tell(texts))
        } catch (err) {
          reject(err)
        }
      }
    } catch (err) {
      for (const { reject } of waiting) reject(err)
    }
  }
}

// Writes, which take effect in the order in which they are asked for: those of one turn of the
// event loop together, and meanwhile those of the next turns gather.
class Writes {
  #write
  #groups = []
  #spare = new Requests()
  #isWorking = false

  // `write` takes packed units and whether they are to be on the medium, and promises answers if
  // one has failed.
  constructor (write) {
    this.#write = write
  }

  put (key, value, isSync) {
    return this.#add(isSync, requests => requests.put(key, value))
  }

  del (key, isSync) {
    return this.#add(isSync, requests => requests.del(key))
  }

  // Operations that take effect together.
  batch (operations, isSync) {
    return this.#add(isSync, requests => {
      requests.batch(operations.length)
      for (const { type, key, value } of operations) {
        if (type === 'put') requests.put(key, value)
        else requests.del(key)
      }
    })
  }

  // Operations that take effect together, and are packed already.
  packed (count, operations, isSync) {
    return this.#add(isSync, requests => {
      requests.batch(count)
      requests.packed(operations)
    })
  }

  // Does what writes in a way of its own, after the writes that were asked for and before those
  // that will be.
  other (call) {
    return this.#call(call, true)
  }

  // Does something after the writes that were asked for.
  after (call) {
    return this.#call(call, false)
  }

  #call (call, isWrite) {
    return new Promise((resolve, reject) => {
      this.#groups.push({ call, isWrite, waiting: [{ resolve, reject }] })
      this.#work()
    })
  }

  #add (isSync, pack) {
    return new Promise((resolve, reject) => {
      let group = this.#groups.at(-1)
      if (group === undefined || group.call !== undefined) {
        const requests = this.#spare ?? new Requests()
        this.#spare = null
        group = { call: undefined, requests, isSync: false, waiting: [] }
        this.#groups.push(group)
      }
      const before = group.requests.length
      try {
        pack(group.requests)
      } catch (err) {
        group.requests.cut(before)
        throw err
      }
      group.isSync ||= isSync
      group.waiting.push({ resolve, reject })
      this.#work()
    })
  }

  async #work () {
    if (this.#isWorking) return
    this.#isWorking = true
    await undefined
    for (let group; (group = this.#groups.shift()) !== undefined;) {
      try {
        if (group.call === undefined) {
          await this.#run(group)
        } else {
          const done = group.call()
          group.waiting[0].resolve(done)
          if (group.isWrite) await done
        }
      } catch (err) {
        for (const { reject } of group.waiting) reject(err)
      }
    }
    this.#isWorking = false
  }

  async #run ({ requests, isSync, waiting }) {
    const written = this.#write(requests.take(), isSync)
    this.#spare = requests
    const answers = await written
    const texts = answers === null ? null : new Texts(answers)
    for (const { resolve, reject } of waiting) {
      try {
        resolve(texts?.answer())
      } catch (err) {
        reject(err)
      }
    }
  }
}

exports.Reads = Reads
exports.Writes = Writes
