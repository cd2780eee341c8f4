import {
  AbstractBatchOperation,
  AbstractBatchOptions,
  AbstractChainedBatch,
  AbstractChainedBatchWriteOptions,
  AbstractClearOptions,
  AbstractDatabaseOptions,
  AbstractDelOptions,
  AbstractIterator,
  AbstractIteratorOptions,
  AbstractKeyIterator,
  AbstractKeyIteratorOptions,
  AbstractLevel,
  AbstractOpenOptions,
  AbstractPutOptions,
  AbstractSnapshot,
  AbstractValueIterator,
  AbstractValueIteratorOptions,
  Transcoder
} from 'abstract-level'

/** What keys and values are for the store. */
export type Format = string | Buffer | Uint8Array

/** What a store and a transaction have in common. */
declare class ViewLevel<KDefault = string, VDefault = string>
  extends AbstractLevel<Format, KDefault, VDefault> {
  put (key: KDefault, value: VDefault): Promise<void>
  put<K = KDefault, V = VDefault> (key: K, value: V, options: PutOptions<K, V>): Promise<void>

  del (key: KDefault): Promise<void>
  del<K = KDefault> (key: K, options: DelOptions<K>): Promise<void>

  batch (operations: Array<BatchOperation<typeof this, KDefault, VDefault>>): Promise<void>
  batch<K = KDefault, V = VDefault> (
    operations: Array<BatchOperation<typeof this, K, V>>,
    options: BatchOptions<K, V>
  ): Promise<void>
  batch (): ChainedBatch<typeof this, KDefault, VDefault>

  clear (): Promise<void>
  clear<K = KDefault> (options: ClearOptions<K>): Promise<void>

  iterator (): AbstractIterator<typeof this, KDefault, VDefault>
  iterator<K = KDefault, V = VDefault> (
    options: AbstractIteratorOptions<K, V> & PageOptions
  ): AbstractIterator<typeof this, K, V>

  keys (): AbstractKeyIterator<typeof this, KDefault>
  keys<K = KDefault> (
    options: AbstractKeyIteratorOptions<K> & PageOptions
  ): AbstractKeyIterator<typeof this, K>

  values (): AbstractValueIterator<typeof this, KDefault, VDefault>
  values<K = KDefault, V = VDefault> (
    options: AbstractValueIteratorOptions<K, V> & PageOptions
  ): AbstractValueIterator<typeof this, K, V>
}

/**
 * An {@link AbstractLevel} database on Gabion.
 *
 * @template KDefault The type of keys, unless an operation has an encoding of its own.
 * @template VDefault The type of values, unless an operation has an encoding of its own.
 */
export class GabionLevel<KDefault = string, VDefault = string>
  extends ViewLevel<KDefault, VDefault> {
  /**
   * @param location Path of the directory of the store, which is made if it is missing.
   * @param options Options, which {@link open} gets as well.
   */
  constructor (location: string, options?: DatabaseOptions<KDefault, VDefault> | undefined)

  /** The path that the constructor got. */
  get location (): string

  open (): Promise<void>
  open (options: OpenOptions): Promise<void>

  /** The store as it is now. It costs space as long as it is open. */
  snapshot (options?: any | undefined): AbstractSnapshot

  /**
   * Runs a function with a transaction and commits. If somebody else has changed meanwhile what the
   * transaction has read, the function runs again with another transaction. If it throws, nothing
   * of it is written.
   */
  transaction<T> (
    body: (transaction: GabionTransaction<KDefault, VDefault>) => T | PromiseLike<T>,
    options?: TransactionOptions | undefined
  ): Promise<T>

  /** Makes all that was written survive power loss. */
  persist (): Promise<void>

  /** Writes what is in memory to tables, which shortens the next open. */
  flush (): Promise<void>

  /**
   * Brings the keys from `start` to `end` into the best order that the engine knows. Old versions
   * that no snapshot needs are gone then.
   */
  compactRange (start: KDefault, end: KDefault): Promise<void>
  compactRange<K = KDefault> (start: K, end: K, options: StartEndOptions<K>): Promise<void>

  /** Writes the store as it is to a directory that does not exist, as a store of its own. */
  checkpoint (location: string): Promise<void>

  /** Counts and sizes: a look at each table, so not for every request. */
  stats (): Promise<Stats>

  /** Removes the store in a directory, which must be closed. */
  static destroy (location: string): Promise<void>
}

/**
 * A transaction: the store as it was when it began, with the transaction's own writes. It is open
 * as long as the function runs that got it.
 */
export interface GabionTransaction<KDefault = string, VDefault = string>
  extends ViewLevel<KDefault, VDefault> {}

/** The names of a store's options. */
export type StoreOption =
  | 'engine' | 'readOnly' | 'follower' | 'durability' | 'memoryBytesMax' | 'backgroundThreads'
  | 'logBytesMax'
  | 'compression' | 'tableReads' | 'spaceAmplificationMax' | 'garbageAgeMax' | 'expiryLagMax'
  | 'transactionAgeMax' | 'poolBytes' | 'poolPath' | 'checkpoints' | 'expectedRecords'
  | 'memtableBudgetBytes' | 'cacheBytes' | 'memtableForm' | 'scansUntilOrdered' | 'blockBytes'
  | 'filterBitsPerKey' | 'paranoidChecks' | 'bucketBytes' | 'splitWays' | 'sublevelsMin'
  | 'sublevelsMax' | 'readWeight' | 'backgroundBytesPerSecondMax' | 'concurrentWriters'
  | 'changesBytesMax'

/** Options of a store: numbers, switches, or text such as `'512MiB'`, `'10s'`, `'zstd:3'`. */
export type StoreOptions = { [name in StoreOption]?: string | number | boolean | undefined }

export interface OpenOptions extends AbstractOpenOptions, StoreOptions {
  /**
   * Whether the threads of this process that say so share one open store.
   *
   * @defaultValue `false`
   */
  multithreading?: boolean | undefined
}

export interface DatabaseOptions<K, V>
  extends AbstractDatabaseOptions<K, V>, Omit<OpenOptions, 'passive'> {}

/** Options of all that writes. */
export interface WriteOptions {
  /**
   * Whether what is written survives power loss once the promise is fulfilled. Otherwise the
   * store's option `durability` says when it does.
   *
   * @defaultValue `false`
   */
  sync?: boolean | undefined
}

export interface PutOptions<K, V> extends AbstractPutOptions<K, V>, WriteOptions {}
export interface DelOptions<K> extends AbstractDelOptions<K>, WriteOptions {}
export interface BatchOptions<K, V> extends AbstractBatchOptions<K, V>, WriteOptions {}
export interface ClearOptions<K> extends AbstractClearOptions<K>, WriteOptions {}
export interface ChainedBatchWriteOptions extends AbstractChainedBatchWriteOptions, WriteOptions {}

export type BatchOperation<TDatabase, K, V> = AbstractBatchOperation<TDatabase, K, V>

export interface ChainedBatch<TDatabase, KDefault, VDefault>
  extends AbstractChainedBatch<TDatabase, KDefault, VDefault> {
  write (): Promise<void>
  write (options: ChainedBatchWriteOptions): Promise<void>
}

/** Options of iterators. */
export interface PageOptions {
  /**
   * How many bytes an iterator reads ahead, about.
   *
   * @defaultValue `65536`
   */
  highWaterMarkBytes?: number | undefined
}

export interface StartEndOptions<K> {
  /** The encoding of `start` and `end`. */
  keyEncoding?: string | Transcoder.PartialEncoder<K> | undefined
}

export interface TransactionOptions extends WriteOptions {
  /**
   * How often the function runs at most.
   *
   * @defaultValue `100`
   */
  attempts?: number | undefined

  /**
   * What a commit looks for: with `serializable` for changes of all that was read, with `snapshot`
   * for changes of what was written.
   *
   * @defaultValue `'serializable'`
   */
  isolation?: 'serializable' | 'snapshot' | undefined

  /** How many bytes it may write, a number or text such as `'64MiB'`. */
  bytesMax?: string | number | undefined
}

/** Counts and sizes, by the names of the book's page on operating. */
export interface Stats {
  [name: string]: any
}

export {}
