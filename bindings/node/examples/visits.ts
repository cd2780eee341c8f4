// Counts visits by several visitors at once, and shows the most visited pages.
//
// Usage: node visits.js DIRECTORY

import { GabionLevel } from 'gabion-level'

// Runs again if another visitor came in between.
function visit (pages: GabionLevel<string, number>, page: string): Promise<number> {
  return pages.transaction(async transaction => {
    const visits = (await transaction.get(page) ?? 0) + 1
    await transaction.put(page, visits)
    return visits
  })
}

async function main (location: string): Promise<void> {
  const pages = new GabionLevel<string, number>(location, {
    valueEncoding: 'json', memoryBytesMax: '64MiB'
  })
  await Promise.all([1, 2, 3, 4].map(async visitor => {
    for (let i = 0; i < 25; i++) await visit(pages, `/page/${visitor * i % 7}`)
  }))
  const found = await pages.iterator().all()
  await pages.close()
  for (const [page, visits] of found.sort((one, other) => other[1] - one[1])) {
    console.log(page, visits)
  }
}

const [location] = process.argv.slice(2)
if (location === undefined) throw new Error('Usage: node visits.js DIRECTORY')
main(location)
