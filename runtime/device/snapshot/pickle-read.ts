// Reads Python pickles of plain data: of protocol 2 to 5, as Python and PyTorch's C++ write them. An opcode that names a class
// or calls something is refused by name: nothing in a file is ever run. Lists and tuples become arrays; dicts objects without a
// prototype, whose keys are strings.

export type Unpickled =
  | null
  | boolean
  | number
  | bigint
  | string
  | Uint8Array
  | readonly Unpickled[]
  | { readonly [key: string]: Unpickled }

/** What is wrong with a pickle, and at which byte. */
export class PickleError extends Error {
  constructor(
    readonly offset: number,
    readonly found: string,
  ) {
    super(`byte ${offset}: ${found}`)
    this.name = 'PickleError'
  }
}

const refused: Readonly<Record<number, string>> = {
  99: 'GLOBAL, which names a class',
  147: 'STACK_GLOBAL, which names a class',
  82: 'REDUCE, which calls something',
  98: 'BUILD, which sets the state of an object',
  105: 'INST, which makes an object',
  111: 'OBJ, which makes an object',
  129: 'NEWOBJ, which makes an object',
  146: 'NEWOBJ_EX, which makes an object',
  80: 'PERSID, which refers to something outside',
  81: 'BINPERSID, which refers to something outside',
  130: 'EXT1, which names a class',
  131: 'EXT2, which names a class',
  132: 'EXT4, which names a class',
}

type Dict = Record<string, Unpickled>
const mark = Symbol('mark')

/** The value, or a PickleError. */
export const unpickle = (bytes: Uint8Array): Unpickled => new Reader(bytes).read()

class Reader {
  private readonly view: DataView
  private readonly buffer: Buffer
  private readonly stack: (Unpickled | typeof mark)[] = []
  private readonly memo = new Map<number, Unpickled>()
  private at = 0
  private start = 0 // of the opcode that is being read

  constructor(bytes: Uint8Array) {
    this.buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  }

  read(): Unpickled {
    if (this.buffer[0] !== 0x80) this.fail('no pickle of protocol 2 or later: it does not begin with 0x80')
    for (;;) {
      this.start = this.at
      const code = this.uint(1)
      if (code === 0x2e) break
      this.step(code)
    }
    const value = this.pop()
    if (this.stack.length > 0) this.fail('values that nothing holds')
    return value
  }

  // One line an opcode, in the order of Python's documentation of them.
  private step(code: number): void {
    const { stack } = this
    if (code === 0x80) this.protocol(this.uint(1))
    else if (code === 0x95)
      this.take(8) // FRAME: a hint
    else if (code === 0x4e) stack.push(null)
    else if (code === 0x88) stack.push(true)
    else if (code === 0x89) stack.push(false)
    else if (code === 0x4a) stack.push(this.view.getInt32(this.take(4), true))
    else if (code === 0x4b) stack.push(this.uint(1))
    else if (code === 0x4d) stack.push(this.uint(2))
    else if (code === 0x8a) stack.push(this.long(this.uint(1)))
    else if (code === 0x8b) stack.push(this.long(this.uint(4)))
    else if (code === 0x47) stack.push(this.view.getFloat64(this.take(8)))
    else if (code === 0x8c) stack.push(this.text(this.uint(1)))
    else if (code === 0x58) stack.push(this.text(this.uint(4)))
    else if (code === 0x8d) stack.push(this.text(this.uint(8)))
    else if (code === 0x43) stack.push(this.raw(this.uint(1)))
    else if (code === 0x42) stack.push(this.raw(this.uint(4)))
    else if (code === 0x5d) stack.push([])
    else if (code === 0x61) this.append([this.pop()])
    else if (code === 0x65) this.append(this.popMark())
    else if (code === 0x6c || code === 0x74) stack.push(this.popMark())
    else if (code === 0x29) stack.push([])
    else if (code >= 0x85 && code <= 0x87) stack.push(this.popMany(code - 0x84))
    else if (code === 0x7d) stack.push(Object.create(null) as Dict)
    else if (code === 0x64) this.dict()
    else if (code === 0x73) this.setItems(this.popMany(2))
    else if (code === 0x75) this.setItems(this.popMark())
    else if (code === 0x28) stack.push(mark)
    else if (code === 0x30) this.pop()
    else if (code === 0x94) this.memo.set(this.memo.size, this.top())
    else if (code === 0x71) this.memo.set(this.uint(1), this.top())
    else if (code === 0x72) this.memo.set(this.uint(4), this.top())
    else if (code === 0x68) stack.push(this.recall(this.uint(1)))
    else if (code === 0x6a) stack.push(this.recall(this.uint(4)))
    else this.fail(refused[code] ?? `the opcode 0x${code.toString(16)}, which plain data has no use for`)
  }

  private protocol(version: number): void {
    if (version < 2 || version > 5) this.fail(`protocol ${version}`)
  }

  private dict(): void {
    const items = this.popMark()
    this.stack.push(Object.create(null) as Dict)
    this.setItems(items)
  }

  private append(items: readonly Unpickled[]): void {
    const list = this.top()
    if (Array.isArray(list)) for (const item of items) list.push(item)
    else this.fail('items for something that is no list')
  }

  private setItems(items: readonly Unpickled[]): void {
    const dict = this.top()
    if (typeof dict !== 'object' || dict === null || Array.isArray(dict) || dict instanceof Uint8Array)
      this.fail('entries for something that is no dict')
    if (items.length % 2 === 1) this.fail('a key without a value')
    for (let i = 0; i < items.length; i += 2) {
      const key = items[i]!
      if (typeof key === 'object' && key !== null) this.fail('a key that is no string or number')
      ;(dict as Dict)[String(key)] = items[i + 1]!
    }
  }

  private recall(place: number): Unpickled {
    const value = this.memo.get(place)
    return value === undefined ? this.fail(`a reference to what is not in the memo: ${place}`) : value
  }

  private top(): Unpickled {
    const value = this.stack.at(-1)
    return value === undefined || value === mark
      ? this.fail('an opcode that wants a value, and none is there')
      : value
  }

  private pop(): Unpickled {
    const value = this.top()
    this.stack.pop()
    return value
  }

  private popMany(count: number): Unpickled[] {
    const values = Array.from({ length: count }, () => this.pop())
    return values.reverse()
  }

  private popMark(): Unpickled[] {
    const place = this.stack.lastIndexOf(mark)
    if (place < 0) return this.fail('the end of a list that never began')
    const items = this.stack.splice(place)
    items.shift()
    return items as Unpickled[]
  }

  private long(bytes: number): number | bigint {
    const at = this.take(bytes)
    if (bytes >= 1 && bytes <= 4) return this.buffer.readIntLE(at, bytes)
    if (bytes <= 8 && bytes > 4) {
      const wide = this.buffer.readIntLE(at + 4, bytes - 4) * 2 ** 32 + this.buffer.readUInt32LE(at)
      if (Number.isSafeInteger(wide)) return wide
    }
    const digits = Buffer.from(this.buffer.subarray(at, at + bytes))
      .reverse()
      .toString('hex')
    const value = bytes === 0 ? 0n : BigInt.asIntN(8 * bytes, BigInt(`0x${digits}`))
    const number = Number(value)
    return Number.isSafeInteger(number) ? number : value
  }

  private text(bytes: number): string {
    const at = this.take(bytes)
    return this.buffer.toString('utf8', at, at + bytes)
  }

  private raw(bytes: number): Uint8Array {
    const at = this.take(bytes)
    return this.buffer.subarray(at, at + bytes)
  }

  private uint(width: 1 | 2 | 4 | 8): number {
    const at = this.take(width)
    if (width === 1) return this.view.getUint8(at)
    if (width === 2) return this.view.getUint16(at, true)
    return width === 4 ? this.view.getUint32(at, true) : Number(this.view.getBigUint64(at, true))
  }

  private take(bytes: number): number {
    const { at } = this
    if (at + bytes > this.buffer.length) this.fail('the end of the file')
    this.at += bytes
    return at
  }

  private fail(found: string): never {
    throw new PickleError(this.start, found)
  }
}
