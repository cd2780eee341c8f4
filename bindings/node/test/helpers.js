'use strict'

const fs = require('node:fs')
const os = require('node:os')
const path = require('node:path')
const { GabionLevel } = require('..')

// A directory that is gone after the test.
function directory (t, before = () => {}) {
  const made = fs.mkdtempSync(path.join(os.tmpdir(), 'gabion-level-'))
  t.after(async () => {
    await before()
    fs.rmSync(made, { recursive: true, force: true })
  })
  return made
}

// An open database that is closed after the test.
async function open (t, options) {
  const made = directory(t, () => db.close())
  const db = new GabionLevel(path.join(made, 'store'), options)
  await db.open()
  return db
}

// Numbers that are as good as random, and the same for each seed.
function numbers (seed) {
  let state = BigInt(seed) + 88172645463325252n
  return limit => {
    state ^= BigInt.asUintN(64, state << 13n)
    state ^= state >> 7n
    state ^= BigInt.asUintN(64, state << 17n)
    return Number(state % BigInt(limit))
  }
}

exports.directory = directory
exports.numbers = numbers
exports.open = open
