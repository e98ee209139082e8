import { DisposedError } from '../errors.js'
import type { Core } from './core.js'
import { AllocatorError, badArgument, wrongDevice } from './failure.js'
import { inScope } from './scopes.js'

/** Memory from functions of the caller's. They are called on the JavaScript thread, and must not call the device. `stream` is the lane's, a CUstream. */
export interface CallbackAllocator {
  /** The address of at least so many bytes, aligned as the device wants it; null or 0 where there are none. */
  allocate(bytes: number, stream: bigint): number | null
  /** Nothing uses them any more. */
  release(address: number, bytes: number, stream: bigint): void
}

/**
 * Memory from two C symbols of a shared library, as PyTorch's `CUDAPluggableAllocator` takes them: `void *allocate(size_t, int device,
 * void *stream)` and `void release(void *, size_t, int device, void *stream)`. What they give must be memory that the device can use; the
 * host device checks that, and takes none but its own.
 */
export interface LibraryAllocator {
  /** The library's path, as dlopen takes it. */
  readonly library: string
  readonly allocate: string
  readonly release: string
}

export interface MemPoolOptions {
  /** An allocation elsewhere that would fail may take free memory from here. Default false. */
  readonly useOnOutOfMemory?: boolean
  /** Blocks are never split: one a segment. Default false. */
  readonly noSplit?: boolean
  /** Where its memory comes from; by default from the driver. */
  readonly allocator?: CallbackAllocator | LibraryAllocator
}

/** Made by `device.pool`. */
export let makePool: (core: Core, options: unknown) => MemPool
/** The handle of a pool that is open and of this device. */
export let poolFor: (pool: unknown, core: Core, at: string) => number

/**
 * A pool of its own, from `device.pool()`: what is allocated in it comes from segments that nothing else uses. Closing it gives back what
 * is free; blocks of it that are alive stay good, and their memory goes back when they are freed.
 */
export class MemPool implements Disposable {
  readonly #core: Core
  readonly #id: number
  // 0 once it is closed.
  #handle: number

  private constructor(core: Core, handle: number, id: number) {
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
        if ('library' in allocator)
          return core.native.makePool(
            useOnOutOfMemory,
            noSplit,
            allocator.library,
            allocator.allocate,
            allocator.release,
          )
        return core.native.makePool(
          useOnOutOfMemory,
          noSplit,
          (bytes, stream) => allocator.allocate(bytes, stream),
          (address, bytes, stream) => allocator.release(address, bytes, stream),
        )
      })
      return new MemPool(core, handle, id)
    }
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

  /** From 1 on, never given twice: snapshots name it. */
  get id(): number {
    return this.#id
  }
  get disposed(): boolean {
    return this.#handle === 0 || this.#core.closed
  }

  /**
   * Runs `body`; what it allocates of this device comes from this pool, unless it names another. Scopes nest, the innermost counts, and what
   * an async body allocates after an `await` is in its scope as well. Gives what `body` gives.
   */
  use<T>(body: () => T): T {
    this.#open('pool.use')
    if (typeof body !== 'function')
      throw badArgument('pool.use', 'body', 'a function', body, 'pass a function that allocates')
    return inScope(this.#core, this, body)
  }

  /** Gives back what is free, once every lane has run what it was given. */
  async emptyCache(): Promise<void> {
    const handle = this.#open('pool.emptyCache')
    await this.#core.wait('pool.emptyCache', 'a pool', () => this.#core.native.emptyCache(handle))
  }

  /** Nothing is allocated in it any more. */
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

const names = ['useOnOutOfMemory', 'noSplit', 'allocator']
const wantedAllocator =
  'an object { allocate, release } of functions, or { library, allocate, release } of texts'

const checked = (given: unknown): MemPoolOptions => {
  try {
    return given === undefined ? {} : read(given)
  } catch (error) {
    if (error instanceof AllocatorError) throw error
    // A getter of the caller's, or a proxy.
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
