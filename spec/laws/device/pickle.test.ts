// What Python makes of the pickles that are written here: the same values, of the same types, in the same order.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type Picklable, pickle, Tuple } from '../../../runtime/device/snapshot/pickle.js'
import { PickleError, type Unpickled, unpickle } from '../../../runtime/device/snapshot/pickle-read.js'

const folder = mkdtempSync(join(tmpdir(), 'braid-pickle-'))
const hasPython = spawnSync('python3', ['--version']).status === 0

const read = `
import json, pickle, pickletools, struct, sys
def told(v):
    t = type(v)
    if v is None: return ["none"]
    if t is bool: return ["bool", v]
    if t is int: return ["int", str(v)]
    if t is float: return ["float", struct.pack(">d", v).hex() if v == v else "nan"]
    if t is str: return ["str", v]
    if t is list: return ["list", [told(x) for x in v]]
    if t is tuple: return ["tuple", [told(x) for x in v]]
    if t is dict: return ["dict", [[k, told(x)] for k, x in v.items()]]
    raise TypeError(t)
# What the unpickler of PyTorch's viewer reads.
known = set("""PROTO NONE NEWTRUE NEWFALSE BININT1 BININT2 BININT LONG1 BINFLOAT SHORT_BINUNICODE BINUNICODE EMPTY_LIST
APPENDS EMPTY_DICT SETITEMS EMPTY_TUPLE TUPLE1 TUPLE2 TUPLE3 TUPLE MARK MEMOIZE BINGET LONG_BINGET STOP""".split())
data = open(sys.argv[1], "rb").read()
wanted = json.load(open(sys.argv[2]))
at = 0
for i, want in enumerate(wanted):
    (n,) = struct.unpack_from("<I", data, at)
    one = data[at + 4 : at + 4 + n]
    at += 4 + n
    used = {op.name for op, _, _ in pickletools.genops(one)}
    if used - known: print(used - known); sys.exit(1)
    got = told(pickle.loads(one))
    if got != want:
        print(json.dumps([i, want, got])); sys.exit(1)
print("same", len(wanted))
`

// The value as the script above tells it.
const told = (value: Picklable): unknown => {
  if (value === null) return ['none']
  if (typeof value === 'boolean') return ['bool', value]
  if (typeof value === 'bigint') return ['int', String(value)]
  if (typeof value === 'string') return ['str', value]
  if (typeof value === 'number') {
    if (Number.isSafeInteger(value) && !Object.is(value, -0)) return ['int', String(value)]
    const bytes = Buffer.alloc(8)
    bytes.writeDoubleBE(value)
    return ['float', Number.isNaN(value) ? 'nan' : bytes.toString('hex')]
  }
  if (value instanceof Tuple) return ['tuple', value.items.map(told)]
  if (Array.isArray(value)) return ['list', value.map(told)]
  const entries = Object.entries(value as Record<string, Picklable | undefined>)
  return ['dict', entries.filter(([, item]) => item !== undefined).map(([key, item]) => [key, told(item!)])]
}

const python = (script: string, ...args: string[]) => {
  const { status, stdout, stderr } = spawnSync('python3', ['-c', script, ...args], { encoding: 'utf8' })
  return { status, said: stdout.trim() || stderr.trim() }
}

const same = (values: readonly Picklable[]) => {
  const pickles = values.flatMap(value => {
    const bytes = pickle(value)
    const length = Buffer.alloc(4)
    length.writeUInt32LE(bytes.length)
    return [length, bytes]
  })
  const [data, wanted] = [join(folder, 'values.pickles'), join(folder, 'values.json')]
  writeFileSync(data, Buffer.concat(pickles))
  writeFileSync(wanted, JSON.stringify(values.map(told)))
  return python(read, data, wanted)
}

const edges = [
  0,
  1,
  255,
  256,
  65_535,
  65_536,
  2 ** 31 - 1,
  2 ** 31,
  2 ** 32,
  2 ** 40,
  Number.MAX_SAFE_INTEGER,
]
const numbers = fc.oneof(
  fc.maxSafeInteger(),
  fc.double(),
  fc.constantFrom(
    ...edges,
    ...edges.map(n => -n),
    ...edges.map(n => -n - 1),
    -0,
    0.5,
    2 ** 53,
    1e300,
    Number.NaN,
  ),
)
const text = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 300 }),
  fc.constantFrom('', '\uD800x', '\uDC00\uD800', '\0'),
)
const { value } = fc.letrec<{ value: Picklable }>(tie => ({
  value: fc.oneof(
    { maxDepth: 4 },
    fc.constant(null),
    fc.boolean(),
    numbers,
    fc.bigInt({ min: -(2n ** 200n), max: 2n ** 200n }),
    text,
    fc.array(tie('value'), { maxLength: 6 }),
    fc.array(tie('value'), { maxLength: 6 }).map(items => new Tuple(...items)),
    fc.dictionary(text, fc.oneof(tie('value'), fc.constant(undefined)), {
      maxKeys: 6,
    }) as fc.Arbitrary<Picklable>,
  ),
}))

describe('pickle', () => {
  it.skipIf(!hasPython)('is read by Python as the same value (skipped without python3)', () => {
    const some = fc.sample(value, { numRuns: 1500 })
    expect(same([...edges, ...edges.map(n => -n), ...edges.map(n => -n - 1), ...some])).toEqual({
      status: 0,
      said: `same ${some.length + 3 * edges.length}`,
    })
  })

  it.skipIf(!hasPython)('is read in one piece where it is long: batches, many places in the memo', () => {
    const strings = Array.from({ length: 70_000 }, (_, i) => `s${i}`)
    const wide = Object.fromEntries(Array.from({ length: 2500 }, (_, i) => [`k${i}`, i]))
    const all = [[...strings, ...strings], wide, [wide, wide], 'x'.repeat(70_000), [[], {}, new Tuple()]]
    expect(
      same([all, [], {}, Array.from({ length: 1000 }, () => 1), Array.from({ length: 1001 }, () => 1)]),
    ).toEqual({
      status: 0,
      said: 'same 5',
    })
  })

  it.skipIf(!hasPython)('keeps what is shared shared', () => {
    const frames = [{ line: 1 }]
    const pool = new Tuple(0, 1)
    const path = join(folder, 'shared.pickle')
    writeFileSync(path, pickle({ a: frames, b: frames, c: { ...frames }, pool, again: pool }))
    const script = `import pickle, sys
v = pickle.load(open(sys.argv[1], "rb"))
print(v["a"] is v["b"], v["a"][0] is v["c"]["0"], v["pool"] is v["again"], v["pool"] == (0, 1))`
    expect(python(script, path)).toEqual({ status: 0, said: 'True True True True' })
  })

  it('grows with what is different, not with what is repeated', () => {
    const site = Array.from({ length: 20 }, (_, i) => ({
      filename: `/somewhere/long/enough/${i}.ts`,
      line: i,
      name: 'f',
    }))
    const records = Array.from({ length: 10_000 }, (_, i) => ({ action: 'alloc', addr: i, frames: site }))
    expect(pickle(records).length).toBeLessThan(10_000 * 16 + 2_000)
  })

  it('appends a thousand items at a time: a reader may take them as the arguments of one call', () => {
    const appends = pickle(Array.from({ length: 2500 }, () => 7)).filter(byte => byte === 0x65)
    expect(appends).toHaveLength(3)
  })

  it('refuses what is no data', () => {
    const circle: Picklable[] = []
    circle.push(circle)
    expect(() => pickle(circle)).toThrow(/holds itself/)
    expect(() => pickle(new Date() as unknown as Picklable)).toThrow(/plain data, found a Date/)
    expect(() => pickle([() => 0] as unknown as Picklable)).toThrow(/plain data, found a function/)
    expect(() => pickle(2n ** 3000n)).toThrow(RangeError)
  })
})

// What reading gives: tuples are lists, and integers beyond 2^53 bigints.
const plain = (value: Picklable): Unpickled => {
  if (typeof value === 'string') return value.replace(/\p{Surrogate}/gu, '\uFFFD\uFFFD\uFFFD')
  if (typeof value === 'bigint') return Number.isSafeInteger(Number(value)) ? Number(value) : value
  if (value instanceof Tuple || Array.isArray(value))
    return (value instanceof Tuple ? value.items : value).map(plain)
  if (typeof value !== 'object' || value === null) return value
  const dict = Object.create(null) as Record<string, Unpickled>
  for (const [key, item] of Object.entries(value as Record<string, Picklable | undefined>))
    if (item !== undefined) dict[plain(key) as string] = plain(item)
  return dict
}

describe('unpickle', () => {
  it('reads what is written here', () => {
    fc.assert(fc.property(value, given => void expect(unpickle(pickle(given))).toEqual(plain(given))))
  })

  const write = `
import json, pickle, struct, sys
values = json.load(open(sys.argv[1]))
values += [[v] * 3 for v in values] + [tuple(values), {"a": (1, (2,), (3, 4, 5), (6, 7, 8, 9), ())}, 2 ** 80, -(2 ** 2100), b"x", "é" * 70000]
with open(sys.argv[2], "wb") as out:
    for v in values:
        for protocol in (2, 3, 4, 5):
            if protocol == 2 and v == b"x": v = None
            one = pickle.dumps(v, protocol)
            out.write(struct.pack("<I", len(one)) + one)
def plain(v):
    if type(v) is bytes: return None
    if type(v) is int and abs(v) >= 2 ** 53: return str(v)
    if type(v) in (list, tuple): return [plain(x) for x in v]
    if type(v) is dict: return {k: plain(x) for k, x in v.items()}
    return v
print(json.dumps([plain(v) for v in values]))`

  it.skipIf(!hasPython)('reads what Python writes, of every protocol (skipped without python3)', () => {
    const some = fc.sample(fc.jsonValue(), { numRuns: 300 })
    const [json, pickles] = [join(folder, 'given.json'), join(folder, 'python.pickles')]
    writeFileSync(json, JSON.stringify(some))
    const { status, said } = python(write, json, pickles)
    expect(status).toBe(0)
    const wanted = JSON.parse(said) as unknown[]
    const data = readFileSync(pickles)
    let at = 0
    for (const each of wanted)
      for (let protocol = 2; protocol <= 5; protocol++) {
        const length = data.readUInt32LE(at)
        const read = unpickle(data.subarray(at + 4, at + 4 + length))
        // As JSON has it: bytes are told as nothing, and large integers as their digits.
        const seen = JSON.parse(
          JSON.stringify(read instanceof Uint8Array ? null : read, (_, v) =>
            typeof v === 'bigint' ? String(v) : v,
          ),
        )
        expect(seen).toEqual(each)
        at += 4 + length
      }
    expect(at).toBe(data.length)
  })

  it('runs nothing, and says what it refuses', () => {
    // os.system("echo owned"), as every tutorial on pickles has it.
    const attack = Buffer.from('\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x0aecho owned\x85R.', 'latin1')
    expect(() => unpickle(attack)).toThrow(/byte 17: STACK_GLOBAL, which names a class/)
    const old = Buffer.from('\x80\x02cposix\nsystem\nX\x02\0\0\0ls\x85R.', 'latin1')
    expect(() => unpickle(old)).toThrow(/byte 2: GLOBAL/)
  })

  it('says what is missing in one that is cut or confused', () => {
    const read = (code: string) => () => unpickle(Buffer.from(`\x80\x04${code}`, 'latin1'))
    expect(read('}(K\x01u.')).toThrow(/a key without a value/)
    expect(read('](K\x01')).toThrow(/byte 6: the end of the file/)
    expect(read('K\x01K\x02.')).toThrow(/values that nothing holds/)
    expect(read('e.')).toThrow(/the end of a list that never began/)
    expect(read('h\x05.')).toThrow(/not in the memo: 5/)
    expect(() => unpickle(Buffer.from('{}'))).toThrow(/does not begin with 0x80/)
  })

  it('gives a value or a PickleError, whatever the bytes', () => {
    const whole = fc.record({
      given: value,
      cut: fc.nat(),
      swaps: fc.array(fc.tuple(fc.nat(), fc.nat(255)), { maxLength: 4 }),
    })
    const damaged = whole.map(({ given, cut, swaps }) => {
      const bytes = Buffer.from(pickle(given))
      for (const [place, byte] of swaps) bytes[place % bytes.length] = byte
      return bytes.subarray(0, 1 + (cut % bytes.length))
    })
    const opcodes = fc.array(fc.constantFrom(...'NK\x01(l]e}u)\x85\x86\x94h\0.st0aJX'), { maxLength: 20 })
    const soup = opcodes.map(list => Buffer.from(`\x80\x04${list.join('')}.`, 'latin1'))
    const property = fc.property(fc.oneof(damaged, soup, fc.uint8Array()), bytes => {
      try {
        unpickle(bytes)
      } catch (error) {
        expect(error).toBeInstanceOf(PickleError)
      }
    })
    fc.assert(property, { numRuns: 2000 })
  })
})
