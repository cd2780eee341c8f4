// What tsc is to say about types; `test.sh` has it checked.

import { AbstractSublevel } from 'abstract-level'
import { GabionLevel, type Format, type GabionTransaction, type Stats } from 'gabion-level'

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends (<T>() => T extends B ? 1 : 2)
  ? true
  : false

// Takes what is of exactly the type T.
function exactly<T> () {
  return <A>(_value: A, ..._equal: Equal<A, T> extends true ? [] : [never]): void => {}
}

export async function check (db: GabionLevel): Promise<void> {
  exactly<string | undefined>()(await db.get('a'))
  exactly<string | undefined>()(db.getSync('a'))
  exactly<Array<string | undefined>>()(await db.getMany(['a']))
  exactly<boolean[]>()(await db.hasMany(['a']))
  exactly<Array<[string, string]>>()(await db.iterator({ highWaterMarkBytes: 100 }).all())
  exactly<string[]>()(await db.keys({ reverse: true, limit: 1 }).all())
  exactly<Stats>()(await db.stats())
  exactly<number>()(await db.transaction(async () => 1, { attempts: 2, isolation: 'snapshot' }))
  exactly<void>()(await db.put('a', '1', { sync: true }))
  exactly<void>()(await db.batch().put('a', '1').del('a').write())
  await db.batch([{ type: 'del', key: 'a' }], { sync: true })
  await db.clear({ gt: 'a', sync: true })
  await db.compactRange('a', 'b')
  const people = db.sublevel<string, { age: number }>('people', { valueEncoding: 'json' })
  exactly<{ age: number } | undefined>()(await people.get('ada'))
  await db.transaction((own: GabionTransaction) => own.put('a', '1'))
  const buffers = new GabionLevel<Buffer, Uint8Array>('b', {
    keyEncoding: 'buffer', valueEncoding: 'view', engine: 'flex', cacheBytes: 1e6, multithreading: true
  })
  exactly<Uint8Array | undefined>()(await buffers.get(Buffer.from('a')))
  exactly<typeof people>()(people as AbstractSublevel<GabionLevel, Format, string, { age: number }>)

  // @ts-expect-error There is no such option.
  new GabionLevel('c', { colour: 'grey' })
  // @ts-expect-error A key is text here.
  await db.get(1)
  // @ts-expect-error A transaction has no transactions.
  await db.transaction(own => own.transaction(() => 1))
}
