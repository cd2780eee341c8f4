'use strict'

// Ranges as the native library takes them: bits, a lower and an upper bound.

const { bytes } = require('./packed')

// The bits are those of `flags` in src/view.rs.
const LOWER = 1
const LOWER_EXCLUDED = 2
const UPPER = 4
const UPPER_EXCLUDED = 8
const REVERSE = 16
const KEYS = 32
const VALUES = 64
const SYNC = 128

const NONE = Buffer.alloc(0)

function range (options) {
  let bits = options.reverse ? REVERSE : 0
  let lower = NONE
  let upper = NONE
  if (options.gte !== undefined) {
    bits |= LOWER
    lower = bytes(options.gte)
  } else if (options.gt !== undefined) {
    bits |= LOWER | LOWER_EXCLUDED
    lower = bytes(options.gt)
  }
  if (options.lte !== undefined) {
    bits |= UPPER
    upper = bytes(options.lte)
  } else if (options.lt !== undefined) {
    bits |= UPPER | UPPER_EXCLUDED
    upper = bytes(options.lt)
  }
  return { bits, lower, upper }
}

exports.range = range
exports.SYNC = SYNC
exports.KEYS = KEYS
exports.VALUES = VALUES
