/**
 * Allocates arrays of numbers. All are 0 at first, except the `unset` ones, which may hold anything: an
 * element that is never written takes no page of memory.
 */
export interface ArrayAllocator {
  int32(length: number): Int32Array
  float64(length: number): Float64Array
  uint16(length: number): Uint16Array
  uint8(length: number): Uint8Array
  int8(length: number): Int8Array
  unset32(length: number): Int32Array
  unset8(length: number): Uint8Array
}

// V8 marks its whole heap each time that 64 MB of ArrayBuffers have been allocated, and a fresh page costs
// the system more than a pass takes to fill it: of a million operations that would be most of the time. So
// large arrays use shared memory, whose bytes V8 does not count (nothing is ever shared with another thread),
// and the memory of a scratch arena is reused.
const large = 2 ** 20
const buffered = (bytes: number): ArrayBufferLike =>
  bytes >= large && typeof SharedArrayBuffer === 'function'
    ? new SharedArrayBuffer(bytes)
    : new ArrayBuffer(bytes)

/** Arrays that live as long as they are referred to. */
export const heap: ArrayAllocator = {
  int32: length => new Int32Array(buffered(4 * length)),
  float64: length => new Float64Array(buffered(8 * length)),
  uint16: length => new Uint16Array(buffered(2 * length)),
  uint8: length => new Uint8Array(buffered(length)),
  int8: length => new Int8Array(buffered(length)),
  unset32: length => new Int32Array(buffered(4 * length)),
  unset8: length => new Uint8Array(buffered(length)),
}

interface Chunk {
  readonly buffer: ArrayBufferLike
  /** Bytes below it have been allocated before and may hold anything; from it on all are 0. */
  used: number
}

const smallest = 2 ** 16
const largest = 2 ** 25

/** An arena allocator: chunks of memory, allocated from the bottom of the first to the top of the last. */
class ScratchArena implements ArrayAllocator {
  private readonly chunks: Chunk[] = []
  private chunk = 0
  private top = 0

  int32(length: number): Int32Array {
    const at = this.take(4 * length)
    return new Int32Array(this.chunks[this.chunk]!.buffer, at, length)
  }

  float64(length: number): Float64Array {
    const at = this.take(8 * length)
    return new Float64Array(this.chunks[this.chunk]!.buffer, at, length)
  }

  uint16(length: number): Uint16Array {
    const at = this.take(2 * length)
    return new Uint16Array(this.chunks[this.chunk]!.buffer, at, length)
  }

  uint8(length: number): Uint8Array {
    const at = this.take(length)
    return new Uint8Array(this.chunks[this.chunk]!.buffer, at, length)
  }

  int8(length: number): Int8Array {
    const at = this.take(length)
    return new Int8Array(this.chunks[this.chunk]!.buffer, at, length)
  }

  unset32(length: number): Int32Array {
    const at = this.take(4 * length, false)
    return new Int32Array(this.chunks[this.chunk]!.buffer, at, length)
  }

  unset8(length: number): Uint8Array {
    const at = this.take(length, false)
    return new Uint8Array(this.chunks[this.chunk]!.buffer, at, length)
  }

  /** Frees everything that `work` allocates. */
  during<A>(work: (allocator: ArrayAllocator) => A): A {
    const { chunk, top } = this
    try {
      return work(this)
    } finally {
      this.chunk = chunk
      this.top = top
    }
  }

  private take(bytes: number, zeroed = true): number {
    const size = Math.ceil(bytes / 8) * 8
    for (;;) {
      const chunk = this.chunks[this.chunk]
      if (chunk === undefined) {
        const before = this.chunks[this.chunk - 1]?.buffer.byteLength ?? smallest / 2
        this.chunks.push({ buffer: buffered(Math.max(size, Math.min(2 * before, largest))), used: 0 })
      } else if (this.top + size <= chunk.buffer.byteLength) {
        const at = this.top
        this.top += size
        const again = zeroed ? Math.min(chunk.used, this.top) : at
        if (again > at) new Float64Array(chunk.buffer, at, (again - at) / 8).fill(0)
        chunk.used = Math.max(chunk.used, this.top)
        return at
      } else {
        this.chunk++
        this.top = 0
      }
    }
  }
}

let open: ScratchArena | undefined
/**
 * The arena that was used last, until it is collected: large plans are compiled and proved one after the
 * other.
 */
let latest: WeakRef<ScratchArena> | undefined

/**
 * Runs `work` with a scratch arena. No array of it may be used afterwards, since the next caller gets the
 * same memory. Calls nest: the inner one allocates above the outer one's arrays.
 */
export const withScratchArena = <A>(work: (allocator: ArrayAllocator) => A): A => {
  if (open !== undefined) return open.during(work)
  const stack = latest?.deref() ?? new ScratchArena()
  open = stack
  try {
    return stack.during(work)
  } finally {
    open = undefined
    latest = new WeakRef(stack)
  }
}
