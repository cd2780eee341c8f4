'use strict'

// The suite of abstract-level, whole.

const fs = require('node:fs')
const os = require('node:os')
const path = require('node:path')
const suite = require('abstract-level/test')
const test = require('tape')
const { GabionLevel } = require('..')

const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'gabion-level-'))
let count = 0

suite({
  test,
  factory: options => new GabionLevel(path.join(directory, String(count++)), options)
})

test.onFinish(() => fs.rmSync(directory, { recursive: true }))
