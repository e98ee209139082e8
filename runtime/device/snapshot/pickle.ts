// Writes Python pickles of protocol 4, of plain data. Uses only opcodes that PyTorch's snapshot viewer knows:
// the viewer has an unpickler of its own, without LONG4, BINUNICODE8 and frozen sets.

/** A Python tuple; a plain array becomes a list. */
export class Tuple {
  readonly items: readonly Picklable[]
  constructor(...items: readonly Picklable[]) {
    this.items = items
  }
  toJSON(): readonly Picklable[] {
    return this.items
  }
}

export type Picklable =
  | null
  | boolean
  | number
  | bigint
  | string
  | Tuple
  | readonly Picklable[]
  | { readonly [key: string]: Picklable | undefined }

const op = {
  proto: 0x80,
  stop: 0x2e,
  none: 0x4e,
  true: 0x88,
  false: 0x89,
  int1: 0x4b,
  int2: 0x4d,
  int4: 0x4a,
  long1: 0x8a,
  float: 0x47,
  shortText: 0x8c,
  text: 0x58,
  emptyList: 0x5d,
  appends: 0x65,
  emptyDict: 0x7d,
  setItems: 0x75,
  emptyTuple: 0x29,
  tuple1: 0x85,
  tuple2: 0x86,
  tuple3: 0x87,
  tuple: 0x74,
  mark: 0x28,
  memoize: 0x94,
  get: 0x68,
  longGet: 0x6a,
} as const

// Python's own pickler puts as many items between two marks: a reader may pass them as the arguments of one
// call.
const batch = 1000

/**
 * `value` as a pickle. Integers up to 2^53 and bigints become `int`, other numbers `float`; objects become
 * `dict` in their own order, without keys that are undefined. An array or object that stands in several
 * places is one object in Python too. Throws a TypeError for a cycle, and for a value that is no data (a
 * function, a Date).
 */
export const pickle = (value: Picklable): Uint8Array => {
  const out = new Bytes()
  out.byte(op.proto)
  out.byte(4)
  new Writer(out, repeated(value)).write(value)
  out.byte(op.stop)
  return out.taken()
}

/**
 * The arrays, objects and strings that stand in more than one place: each gets a place in the pickle's memo.
 */
const repeated = (root: Picklable): ReadonlySet<unknown> => {
  const met = new Set<unknown>()
  const again = new Set<unknown>()
  const open = new Set<object>()
  const visit = (value: Picklable | undefined): void => {
    if (typeof value !== 'string' && (typeof value !== 'object' || value === null)) return
    if (typeof value === 'object' && open.has(value)) throw new TypeError('pickle: a value that holds itself')
    if (met.has(value)) {
      again.add(value)
      return
    }
    met.add(value)
    if (typeof value === 'string') return
    open.add(value)
    const items = value instanceof Tuple ? value.items : value
    if (Array.isArray(items)) for (const item of items as readonly Picklable[]) visit(item)
    else
      for (const key of keysOf(items)) {
        const item = (items as Record<string, Picklable | undefined>)[key]
        if (item === undefined) continue
        visit(key)
        visit(item)
      }
    open.delete(value)
  }
  visit(root)
  return again
}

const keysOf = (value: object): readonly string[] => {
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype === Object.prototype || prototype === null) return Object.keys(value)
  throw new TypeError(`pickle: wanted plain data, found a ${value.constructor?.name ?? 'value of a class'}`)
}

class Writer {
  private readonly memo = new Map<unknown, number>()
  constructor(
    private readonly out: Bytes,
    private readonly shared: ReadonlySet<unknown>,
  ) {}

  write(value: Picklable): void {
    const { out } = this
    if (value === null) out.byte(op.none)
    else if (value === true) out.byte(op.true)
    else if (value === false) out.byte(op.false)
    else if (typeof value === 'number') this.number(value)
    else if (typeof value === 'bigint') this.long(value)
    else if (typeof value === 'string' || typeof value === 'object') this.memoized(value)
    else throw new TypeError(`pickle: wanted plain data, found a ${typeof value}`)
  }

  private memoized(value: string | object): void {
    const { out, memo } = this
    const place = memo.get(value)
    if (place !== undefined) {
      if (place < 256) out.byte(op.get, place)
      else out.uint(op.longGet, place, 4)
    } else if (typeof value === 'string') {
      this.text(value)
      this.remember(value)
    } else if (value instanceof Tuple) {
      this.tuple(value)
      this.remember(value)
    } else if (Array.isArray(value)) {
      out.byte(op.emptyList)
      this.remember(value)
      this.batches(value as Picklable[], op.appends, item => this.write(item ?? null))
    } else {
      out.byte(op.emptyDict)
      this.remember(value)
      const pairs = Object.entries(value as Record<string, Picklable>).filter(
        ([, item]) => item !== undefined,
      )
      this.batches(pairs, op.setItems, ([key, item]) => {
        this.write(key)
        this.write(item)
      })
    }
  }

  private remember(value: unknown): void {
    if (!this.shared.has(value)) return
    this.memo.set(value, this.memo.size)
    this.out.byte(op.memoize)
  }

  private batches<A>(items: readonly A[], close: number, each: (item: A) => void): void {
    for (let start = 0; start < items.length; start += batch) {
      this.out.byte(op.mark)
      for (let i = start; i < Math.min(start + batch, items.length); i++) each(items[i]!)
      this.out.byte(close)
    }
  }

  private tuple({ items }: Tuple): void {
    const { length } = items
    if (length > 3) this.out.byte(op.mark)
    for (const item of items) this.write(item)
    this.out.byte([op.emptyTuple, op.tuple1, op.tuple2, op.tuple3][length] ?? op.tuple)
  }

  private number(value: number): void {
    const { out } = this
    if (!Number.isSafeInteger(value) || Object.is(value, -0)) out.float(op.float, value)
    else if (value >= 0 && value < 2 ** 8) out.byte(op.int1, value)
    else if (value >= 0 && value < 2 ** 16) out.uint(op.int2, value, 2)
    else if (value >= -(2 ** 31) && value < 2 ** 31) out.uint(op.int4, value, 4)
    else this.long(BigInt(value))
  }

  // Little-endian two's complement, as few bytes as hold the sign.
  private long(value: bigint): void {
    let bytes = 0
    while (bytes < 256 && BigInt.asIntN(8 * bytes, value) !== value) bytes++
    if (bytes > 255) throw new RangeError('pickle: an integer of more than 255 bytes')
    this.out.byte(op.long1, bytes)
    for (let i = 0; i < bytes; i++) this.out.byte(Number(BigInt.asUintN(8, value >> BigInt(8 * i))))
  }

  private text(value: string): void {
    const bytes = utf8(value)
    if (bytes.length < 256) this.out.byte(op.shortText, bytes.length)
    else this.out.uint(op.text, bytes.length, 4)
    this.out.append(bytes)
  }
}

// Python's own pickles keep lone surrogates, as three bytes each; TextEncoder would lose them.
const utf8 = (text: string): Uint8Array => {
  if (!/\p{Surrogate}/u.test(text)) return Buffer.from(text, 'utf8')
  return Buffer.concat(
    Array.from(text, character => {
      const code = character.codePointAt(0)!
      if (code < 0xd800 || code > 0xdfff) return Buffer.from(character, 'utf8')
      return Buffer.from([0xe0 | (code >> 12), 0x80 | ((code >> 6) & 63), 0x80 | (code & 63)])
    }),
  )
}

class Bytes {
  private bytes = Buffer.allocUnsafe(1 << 16)
  private length = 0

  byte(first: number, second?: number): void {
    this.reserve(2)
    this.bytes[this.length++] = first
    if (second !== undefined) this.bytes[this.length++] = second
  }

  uint(code: number, value: number, width: 2 | 4): void {
    this.reserve(5)
    this.bytes[this.length++] = code
    for (let i = 0; i < width; i++) this.bytes[this.length++] = (value >> (8 * i)) & 255
  }

  float(code: number, value: number): void {
    this.reserve(9)
    this.bytes[this.length++] = code
    this.length = this.bytes.writeDoubleBE(value, this.length)
  }

  append(bytes: Uint8Array): void {
    this.reserve(bytes.length)
    this.bytes.set(bytes, this.length)
    this.length += bytes.length
  }

  taken(): Uint8Array {
    return this.bytes.subarray(0, this.length)
  }

  private reserve(more: number): void {
    if (this.length + more <= this.bytes.length) return
    const larger = Buffer.allocUnsafe(Math.max(2 * this.bytes.length, this.length + more))
    larger.set(this.bytes.subarray(0, this.length))
    this.bytes = larger
  }
}
