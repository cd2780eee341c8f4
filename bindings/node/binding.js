'use strict'

// The native library of this platform.

const path = require('node:path')

const platform = `${process.platform}-${process.arch}`
const file = path.join(__dirname, 'prebuilds', platform, 'gabion-level.node')

try {
  module.exports = require(file)
} catch (cause) {
  const message = `gabion-level has no native library that works on ${platform} (${file}). ` +
    'In a clone of Gabion with cargo there, `npm run build` makes it'
  throw new Error(message, { cause })
}
