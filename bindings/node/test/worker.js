'use strict'

// What the threads of `processes.test.js` do with a store.

const { parentPort, workerData } = require('node:worker_threads')
const { GabionLevel } = require('..')

async function main ({ location, options, own, count, isLeftOpen }) {
  const db = new GabionLevel(location, options)
  await db.open()
  const writes = []
  for (let i = 0; i < count; i++) writes.push(db.put(`${own}-${i}`, String(i)))
  await Promise.all(writes)
  if (!isLeftOpen) return db.close()
  // Kept open and busy until somebody terminates the thread.
  db.iterator().next()
  setInterval(() => db.put(`${own}-busy`, 'yes'), 1)
}

main(workerData).then(
  () => parentPort.postMessage({}),
  error => parentPort.postMessage({ code: error.cause?.code ?? error.code })
)
