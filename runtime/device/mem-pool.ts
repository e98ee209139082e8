import { AsyncLocalStorage } from 'node:async_hooks'
import { DisposedError } from '../errors.js'
import { thrown } from '../values.js'
import { AllocatorError, badArgument, wrongDevice } from './allocator-error.js'
import { madeBy } from './arguments.js'
import { Core } from './core.js'

/**
 * Memory from functions of the caller's. They are called on the JavaScript thread and must not call the
 * device. `stream` is the lane's stream, a CUstream.
 */
export interface CallbackAllocator {
  /**
   * Returns the address of at least `bytes` bytes, aligned as the device needs it; null or 0 where there are
   * none.
   */
  allocate(bytes: number, stream: bigint): number | null
  /** Called when nothing uses the memory any more. */
  release(address: number, bytes: number, stream: bigint): void
}

/**
 * Memory from two C symbols of a shared library, as PyTorch's `CUDAPluggableAllocator` takes them: `void
 * *allocate(size_t, int device, void *stream)` and `void release(void *, size_t, int device, void *stream)`.
 * The memory must be usable by the device; the host device checks that, and accepts only its own memory.
 */
export interface LibraryAllocator {
  /** The library's path, as dlopen takes it. */
  readonly library: string
  readonly allocate: string
  readonly release: string
}

export interface MemPoolOptions {
  /** An allocation outside the pool that would fail may take the pool's free memory. Default false. */
  readonly useOnOutOfMemory?: boolean
  /** Blocks are never split: each segment holds one block. Default false. */
  readonly noSplit?: boolean
  /** Where the pool's memory comes from. Default: the driver. */
  readonly allocator?: CallbackAllocator | LibraryAllocator
}

/** For `device.pool`. */
export let makePool: (core: Core, options: unknown) => MemPool
/** The handle of a pool. Throws unless it is a pool of this device that is open. */
export let poolFor: (pool: unknown, core: Core, at: string) => number

interface Scope {
  readonly core: Core
  readonly pool: MemPool
  readonly outer: Scope | undefined
}

// An AsyncLocalStorage follows the awaits of a scope's body, so that two bodies that run concurrently do not
// mix.
const scopes = new AsyncLocalStorage<Scope>()

/** The handle of a pool for sessions, and the core of its device. Throws unless it is open. */
export let sessionPool: (pool: MemPool) => {
  readonly core: Core
  readonly handle: number
  readonly scripted: boolean
}

/** The handle of the innermost pool of this device whose `use` runs the caller; 0 where there is none. */
export const poolInScope = (core: Core, at: string): number => {
  for (let scope = scopes.getStore(); scope !== undefined; scope = scope.outer)
    if (scope.core === core) return poolFor(scope.pool, core, at)
  return 0
}

/**
 * A separate pool of device memory, from `device.pool()`: its allocations come from segments that nothing
 * else uses. Closing the pool gives its free memory back to the driver. Blocks that are alive stay valid, and
 * their memory goes back when they are freed.
 */
export class MemPool implements Disposable {
  readonly #core: Core
  readonly #id: number
  readonly #scripted: boolean
  // 0 once it is closed.
  #handle: number

  private constructor(core: Core, handle: number, id: number, scripted: boolean) {
    madeBy(core instanceof Core, 'MemPool', 'device.pool()')
    this.#scripted = scripted
    this.#core = core
    this.#handle = handle
    this.#id = id
  }

  static {
    makePool = (core, given) => {
      const options = checked(given)
      const { useOnOutOfMemory = false, noSplit = false, allocator } = options
      const { handle, id } = core.tried('device.pool', 'a pool', () => {
        if (allocator === undefined) return core.native.makePool(useOnOutOfMemory, noSplit)
        if ('library' in allocator) return libraryPool(core, useOnOutOfMemory, noSplit, allocator)
        return core.native.makePool(
          useOnOutOfMemory,
          noSplit,
          (bytes, stream) => allocator.allocate(bytes, stream),
          (address, bytes, stream) => allocator.release(address, bytes, stream),
        )
      })
      return new MemPool(core, handle, id, allocator !== undefined && !('library' in allocator))
    }
    sessionPool = pool => ({ core: pool.#core, handle: pool.#open('open'), scripted: pool.#scripted })
    poolFor = (pool, core, at) => {
      if (!MemPool.is(pool))
        throw badArgument(at, 'pool', 'a MemPool, from device.pool()', pool, 'pass what device.pool() gave')
      if (pool.#core !== core) throw wrongDevice(at, 'a pool', core.name)
      return pool.#open(at)
    }
  }

  static is(value: unknown): value is MemPool {
    return typeof value === 'object' && value !== null && #core in value
  }

  /** The pool's number in snapshots, from 1 on; no two pools share one. */
  get id(): number {
    return this.#id
  }
  get disposed(): boolean {
    return this.#handle === 0 || this.#core.closed
  }

  /**
   * Runs `body` and returns its result. Allocations of this device inside `body` come from this pool, unless
   * they name another one. Scopes nest, and the innermost counts. The scope of an async body includes its
   * code after an `await`.
   */
  use<T>(body: () => T): T {
    this.#open('pool.use')
    if (typeof body !== 'function')
      throw badArgument('pool.use', 'body', 'a function', body, 'pass a function that allocates')
    this.#core.careful = true
    return scopes.run({ core: this.#core, pool: this, outer: scopes.getStore() }, body)
  }

  /** Gives free memory back to the driver, once every lane has run its work. */
  async emptyCache(): Promise<void> {
    const handle = this.#open('pool.emptyCache')
    await this.#core.wait('pool.emptyCache', 'a pool', () => this.#core.native.emptyCache(handle))
  }

  /** Ends allocation in the pool. */
  close(): void {
    const handle = this.#open('pool.close')
    this.#core.tried('pool.close', 'a pool', () => this.#core.native.closePool(handle))
    this.#handle = 0
  }

  [Symbol.dispose](): void {
    if (this.#handle !== 0 && !this.#core.closed) this.close()
  }

  #open(at: string): number {
    this.#core.open('a pool')
    if (this.#handle === 0)
      throw new DisposedError(
        'a pool',
        `${at} needs one that was not closed; make another with device.pool()`,
      )
    return this.#handle
  }
}

/** The addon opens the library, and refuses one that it cannot open or that lacks a function. */
const libraryPool = (
  core: Core,
  useOnOutOfMemory: boolean,
  noSplit: boolean,
  { library, allocate, release }: LibraryAllocator,
): { readonly handle: number; readonly id: number } => {
  try {
    return core.native.makePool(useOnOutOfMemory, noSplit, library, allocate, release)
  } catch (error) {
    // Failures of the device itself have a code.
    if ((error as { code?: unknown }).code !== undefined) throw error
    throw new AllocatorError(
      {
        _tag: 'BadArgument',
        at: 'device.pool',
        subject: 'options.allocator',
        wanted: `a shared library that dlopen finds, with the functions ${allocate} and ${release}`,
        found: `${library}: ${thrown(error)}`,
        next: 'give the whole path of a library for this machine, and the names of functions of C linkage',
      },
      { cause: error },
    )
  }
}

const names = ['useOnOutOfMemory', 'noSplit', 'allocator']
const wantedAllocator =
  'an object { allocate, release } of functions, or { library, allocate, release } of texts'

const checked = (given: unknown): MemPoolOptions => {
  try {
    return given === undefined ? {} : read(given)
  } catch (error) {
    if (error instanceof AllocatorError) throw error
    // The options have a getter that throws, or are a proxy.
    throw badArgument('device.pool', 'options', 'options that can be read', given, 'pass a plain object')
  }
}

const read = (given: unknown): MemPoolOptions => {
  const next = 'correct the option, or leave it out'
  if (typeof given !== 'object' || given === null)
    throw badArgument('device.pool', 'options', `an object of ${names.join(', ')}`, given, next)
  for (const name of Object.keys(given))
    if (!names.includes(name))
      throw badArgument('device.pool', 'options', `one of ${names.join(', ')}`, name, next)
  const options = given as Record<string, unknown>
  for (const name of ['useOnOutOfMemory', 'noSplit'])
    if (options[name] !== undefined && typeof options[name] !== 'boolean')
      throw badArgument('device.pool', `options.${name}`, 'true or false', options[name], next)
  const { allocator } = options
  if (allocator === undefined) return given
  const of = (typeof allocator === 'object' && allocator !== null ? allocator : {}) as Record<string, unknown>
  const kind = 'library' in of ? 'string' : 'function'
  const fields = kind === 'string' ? ['library', 'allocate', 'release'] : ['allocate', 'release']
  if (fields.some(field => typeof of[field] !== kind || of[field] === ''))
    throw badArgument('device.pool', 'options.allocator', wantedAllocator, allocator, next)
  return given
}
