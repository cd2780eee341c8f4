// A program that takes a database: `datastore-level`, in which IPFS keeps what it knows, passes its
// authors' suite on a store of ours.

import fs from 'node:fs'
import { register } from 'node:module'
import os from 'node:os'
import path from 'node:path'
import { after, afterEach, before, beforeEach, describe, it } from 'node:test'
import { LevelDatastore } from 'datastore-level'
import { GabionLevel } from 'gabion-level'

// The suite is written for mocha, whose functions are global.
const timed = body => body.length > 0 ? body : () => body.call({ timeout () {} })
Object.assign(globalThis, { after, afterEach, before, beforeEach, describe })
globalThis.it = (name, body) => it(name, timed(body))

register('./aegir-chai.mjs', import.meta.url)
const { interfaceDatastoreTests } = await import('interface-datastore-tests')

const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'gabion-level-'))
let count = 0

describe('datastore-level', () => {
  after(() => fs.rmSync(directory, { recursive: true }))

  interfaceDatastoreTests({
    async setup () {
      const location = path.join(directory, String(count++))
      const db = new GabionLevel(location, { keyEncoding: 'utf8', valueEncoding: 'view' })
      const store = new LevelDatastore(db)
      await store.open()
      return store
    },
    teardown: store => store.close()
  })
})
