// Python and an independent reader read a pickle of Braid's as the same value: same types, same order.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type Picklable, pickle, Tuple } from '../../../runtime/device/snapshot/pickle.js'
import { type Unpickled, unpickle } from '../../fixtures/unpickle.js'

const folder = mkdtempSync(join(tmpdir(), 'braid-pickle-'))
const hasPython = spawnSync('python3', ['--version']).status === 0

const read = `
import json, pickle, pickletools, struct, sys
def typed(v):
    t = type(v)
    if v is None: return ["none"]
    if t is bool: return ["bool", v]
    if t is int: return ["int", str(v)]
    if t is float: return ["float", struct.pack(">d", v).hex() if v == v else "nan"]
    if t is str: return ["str", v]
    if t is list: return ["list", [typed(x) for x in v]]
    if t is tuple: return ["tuple", [typed(x) for x in v]]
    if t is dict: return ["dict", [[k, typed(x)] for k, x in v.items()]]
    raise TypeError(t)
# What the unpickler of PyTorch's viewer reads.
known = set("""PROTO NONE NEWTRUE NEWFALSE BININT1 BININT2 BININT LONG1 BINFLOAT SHORT_BINUNICODE BINUNICODE
EMPTY_LIST APPENDS EMPTY_DICT SETITEMS EMPTY_TUPLE TUPLE1 TUPLE2 TUPLE3 TUPLE MARK MEMOIZE BINGET LONG_BINGET STOP""".split())
data = open(sys.argv[1], "rb").read()
wanted = json.load(open(sys.argv[2]))
at = 0
for i, want in enumerate(wanted):
    (n,) = struct.unpack_from("<I", data, at)
    one = data[at + 4 : at + 4 + n]
    at += 4 + n
    used = {op.name for op, _, _ in pickletools.genops(one)}
    if used - known: print(used - known); sys.exit(1)
    got = typed(pickle.loads(one))
    if got != want:
        print(json.dumps([i, want, got])); sys.exit(1)
print("same", len(wanted))
`

// The value with its Python types, as the script above prints it.
const typed = (value: Picklable): unknown => {
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
  if (value instanceof Tuple) return ['tuple', value.items.map(typed)]
  if (Array.isArray(value)) return ['list', value.map(typed)]
  const entries = Object.entries(value as Record<string, Picklable | undefined>)
  return ['dict', entries.filter(([, item]) => item !== undefined).map(([key, item]) => [key, typed(item!)])]
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
  writeFileSync(wanted, JSON.stringify(values.map(typed)))
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

// The value as the reader of the fixtures returns it: tuples are lists, bigints within 2^53 are numbers.
const plain = (value: Picklable): Unpickled => {
  if (typeof value === 'string') return value.replace(/\p{Surrogate}/gu, '\uFFFD\uFFFD\uFFFD')
  if (typeof value === 'bigint') return Number.isSafeInteger(Number(value)) ? Number(value) : value
  if (value instanceof Tuple) return value.items.map(plain)
  if (Array.isArray(value)) return value.map(plain)
  if (typeof value !== 'object' || value === null) return value
  const dict = Object.create(null) as Record<string, Unpickled>
  for (const [key, item] of Object.entries(value as Record<string, Picklable | undefined>))
    if (item !== undefined) dict[plain(key) as string] = plain(item)
  return dict
}

describe('pickle', () => {
  it('is read as the same value by a reader that shares no code with the writer', () => {
    fc.assert(fc.property(value, given => void expect(unpickle(pickle(given))).toEqual(plain(given))))
  })

  it('is read by Python as the same value', context => {
    if (!hasPython) return context.skip('python3 is not installed')
    const some = fc.sample(value, { numRuns: 1500 })
    expect(same([...edges, ...edges.map(n => -n), ...edges.map(n => -n - 1), ...some])).toEqual({
      status: 0,
      said: `same ${some.length + 3 * edges.length}`,
    })
  })

  it('is read in one piece where it is long: batches, many places in the memo', context => {
    if (!hasPython) return context.skip('python3 is not installed')
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

  it('keeps what is shared shared', context => {
    if (!hasPython) return context.skip('python3 is not installed')
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
