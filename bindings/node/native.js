'use strict'

// Where objects of this package keep what stands for them in the native library.
exports.kNative = Symbol('native')
