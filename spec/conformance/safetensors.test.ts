import { spawnSync } from 'node:child_process'
import { mkdtemp, open, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { orThrow } from '../../dsl/index.js'
import { repeatedKeys } from '../../runtime/files/safetensors/header.js'
import {
  SafetensorsError,
  type SafetensorsFaults,
  safetensors,
  writeSafetensors,
} from '../../runtime/files/safetensors.js'
import { runs } from '../fixtures/runs.js'

let folder = ''
beforeAll(async () => void (folder = await mkdtemp(join(tmpdir(), 'braid-safetensors-'))))
afterAll(() => rm(folder, { recursive: true, force: true }))

let count = 0
const fresh = () => join(folder, `${count++}.safetensors`)

/** A file with this header (text or bytes), this many bytes of data, and a length field that may be wrong. */
const file = async (header: string | Uint8Array, dataBytes: number, length?: bigint): Promise<string> => {
  const json = typeof header === 'string' ? new TextEncoder().encode(header) : header
  const bytes = new Uint8Array(8 + json.length + dataBytes)
  new DataView(bytes.buffer).setBigUint64(0, length ?? BigInt(json.length), true)
  bytes.set(json, 8)
  bytes.fill(7, 8 + json.length)
  const path = fresh()
  await writeFile(path, bytes)
  return path
}

const faults = async (path: string): Promise<SafetensorsFaults> => {
  const opened = await safetensors(path)()
  if (E.isLeft(opened)) return opened.left
  await opened.right.close()
  throw new Error('the file was accepted')
}

const wellFormed = {
  a: { dtype: 'F32', shape: [2, 3], data_offsets: [0, 24] },
  b: { dtype: 'U8', shape: [5], data_offsets: [24, 29] },
}

describe('a valid file', () => {
  it('yields the tensors that were written', async () => {
    const path = fresh()
    const weights = Float32Array.from({ length: 3 << 20 }, (_, i) => i * 0.5)
    const chunks = function* () {
      for (let at = 0; at < weights.byteLength; at += 1 << 20)
        yield new Uint8Array(weights.buffer, at, Math.min(1 << 20, weights.byteLength - at))
    }
    const written = await writeSafetensors(
      path,
      [
        { name: 'layers.0.weight', dtype: 'f32', shape: [3, 1 << 20], bytes: chunks },
        { name: '__proto__', dtype: 'f32', shape: [2], bytes: new Uint8Array(8) },
        { name: 'ünïcode "quoted"', dtype: 'bf16', shape: [3], bytes: Uint8Array.of(1, 2, 3, 4, 5, 6) },
        { name: 'scalar', dtype: 'i32', shape: [], bytes: Uint8Array.of(9, 0, 0, 0) },
        { name: 'empty', dtype: 'f16', shape: [4, 0], bytes: new Uint8Array(0) },
      ],
      { made: 'here' },
    )()
    expect(written).toEqual(E.right(undefined))
    const opened = await safetensors(path)()
    if (E.isLeft(opened)) throw new Error(JSON.stringify(opened.left))
    await using weightsFile = opened.right
    expect([...weightsFile.tensors.keys()]).toEqual([
      'layers.0.weight',
      '__proto__',
      'ünïcode "quoted"',
      'scalar',
      'empty',
    ])
    expect(weightsFile.tensors.get('layers.0.weight')).toMatchObject({
      dtype: 'f32',
      shape: [3, 1 << 20],
      bytes: 12 << 20,
    })
    expect(weightsFile.metadata).toEqual({ made: 'here' })
    const whole = new Uint8Array((12 << 20) + 64).fill(0xee)
    await weightsFile.source('layers.0.weight')(whole.subarray(32, 32 + (12 << 20)))
    expect(Buffer.compare(whole.subarray(32, 32 + (12 << 20)), new Uint8Array(weights.buffer))).toBe(0)
    expect([...whole.subarray(0, 32), ...whole.subarray(-32)]).toEqual(new Array(64).fill(0xee))
    const small = new Uint8Array(6)
    await weightsFile.source('ünïcode "quoted"')(small, { dtype: 'bf16', shape: [3] })
    expect([...small]).toEqual([1, 2, 3, 4, 5, 6])
  })

  it('may hold element types that Braid does not compute with, if no parameter needs them', async () => {
    const path = await file(JSON.stringify({ ids: { dtype: 'I64', shape: [2], data_offsets: [0, 16] } }), 16)
    const opened = await safetensors(path)()
    if (E.isLeft(opened)) throw new Error(JSON.stringify(opened.left))
    await using held = opened.right
    expect(held.foreign.get('ids')).toBe('I64')
    await expect(held.source('ids')(new Uint8Array(16))).rejects.toThrow(/I64/)
  })

  it('may hold element types of any name among the others, and metadata that is null', async () => {
    const names = ['F4', 'F6_E2M3', 'F8_E4M3FNUZ', 'F17', 'constructor', '__proto__', '', 'a b\u001b[31m']
    const types = fc.constantFrom('F32', 'U8', 'I64', ...names)
    const sizes = new Map([
      ['F32', 4],
      ['U8', 1],
      ['I64', 8],
    ])
    const shapes = fc.array(fc.nat({ max: 4 }), { maxLength: 2 })
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(types, shapes, fc.nat({ max: 9 })), { maxLength: 6 }),
        async list => {
          let end = 0
          const header: Record<string, unknown> = { __metadata__: null }
          const entries = list.map(([dtype, shape, more], i) => {
            const each = sizes.get(dtype)
            const bytes = each === undefined ? more : shape.reduce((a, b) => a * b, each)
            header[`t${i}`] = { dtype, shape, data_offsets: [end, (end += bytes)] }
            return { name: `t${i}`, dtype, bytes }
          })
          await using held = orThrow(await safetensors(await file(JSON.stringify(header), end))())
          expect(held.metadata).toEqual({})
          for (const { name, dtype, bytes } of entries) {
            const into = new Uint8Array(bytes)
            const read = held.source(name)(into)
            if (dtype === 'F32' || dtype === 'U8') {
              await read
              expect(into.every(byte => byte === 7)).toBe(true)
            } else {
              expect(held.foreign.get(name)).toBe(dtype)
              const error = (await read.catch(reason => reason)) as SafetensorsError
              expect(error.fault).toMatchObject({ _tag: 'Mismatch', subject: name })
              expect(error.fault.found).not.toContain('\u001b')
            }
          }
          expect(held.tensors.size + held.foreign.size).toBe(list.length)
        },
      ),
      { numRuns: runs(60) },
    )
  })

  it('may have a header of many tensors: reading it takes time in proportion to them', {
    timeout: 15_000,
  }, async () => {
    const entries = Array.from({ length: 180_000 }, (_, i) => [
      `t${i}`,
      { dtype: i % 2 ? 'I64' : 'F32', shape: [i % 2 ? 1 : 2], data_offsets: [8 * i, 8 * i + 8] },
    ])
    const opened = await safetensors(await file(JSON.stringify(Object.fromEntries(entries)), 8 * 180_000))()
    if (E.isLeft(opened)) throw new Error(opened.left[0].found)
    expect(opened.right.tensors.size + opened.right.foreign.size).toBe(180_000)
    await opened.right.close()
  })

  it('refuses another name, type, shape or size, each with its own error', async () => {
    const opened = await safetensors(await file(JSON.stringify(wellFormed), 29))()
    if (E.isLeft(opened)) throw new Error(JSON.stringify(opened.left))
    await using held = opened.right
    await expect(held.source('c')(new Uint8Array(4))).rejects.toThrow(/a, b/)
    await expect(held.source('a')(new Uint8Array(23))).rejects.toThrow(/23 bytes/)
    await expect(held.source('a')(new Uint8Array(24), { dtype: 'f32', shape: [3, 2] })).rejects.toThrow(
      /f32\[3, 2\][\s\S]*f32\[2, 3\]/,
    )
    await expect(
      held.source('a')(new Uint8Array(24), { dtype: 'i32', shape: [2, 3] }),
    ).rejects.toBeInstanceOf(SafetensorsError)
  })

  it('that shrinks after it was opened is reported as truncated', async () => {
    const path = await file(JSON.stringify(wellFormed), 29)
    const opened = await safetensors(path)()
    if (E.isLeft(opened)) throw new Error(JSON.stringify(opened.left))
    await using held = opened.right
    await truncate(path, (await readFile(path)).length - 3)
    await expect(held.source('b')(new Uint8Array(5))).rejects.toMatchObject({
      fault: { _tag: 'Truncated', subject: 'b' },
    })
  })
})

describe('what cannot be written', () => {
  it('is refused by what is wrong with it', async () => {
    const entry = { name: 'w', dtype: 'f32', shape: [2], bytes: new Uint8Array(8) } as const
    const refused = async (entries: unknown, metadata?: unknown): Promise<object> => {
      const written = await writeSafetensors(fresh(), entries as never, metadata as never)()
      return E.isLeft(written) ? written.left : {}
    }
    for (const metadata of [{ a: 5 }, null, 'text'])
      expect(await refused([entry], metadata)).toMatchObject({
        subject: 'metadata',
        wanted: 'an object of strings',
      })
    const throwing = () => {
      throw new Error('mine')
    }
    expect(await refused([{ ...entry, bytes: throwing }])).toMatchObject({
      subject: 'w',
      found: 'one that threw: mine',
    })
    expect(await refused([{ ...entry, bytes: () => ['text'] }])).toMatchObject({
      subject: 'w',
      wanted: 'chunks of bytes: Uint8Array',
    })
  })
})

describe('an invalid file', () => {
  const entry = (changes: object) => JSON.stringify({ a: { ...wellFormed.a, ...changes } })
  const lies: readonly [
    name: string,
    header: string | Uint8Array,
    data: number,
    tag: string,
    length?: bigint,
  ][] = [
    ['a header longer than the file', JSON.stringify(wellFormed), 29, 'Truncated', 5000n],
    ['a header of 2^63 bytes', JSON.stringify(wellFormed), 29, 'BadHeader', 1n << 63n],
    ['a header of 2^64 - 1 bytes', JSON.stringify(wellFormed), 29, 'BadHeader', (1n << 64n) - 1n],
    ['a header just over the limit', JSON.stringify(wellFormed), 29, 'BadHeader', 100_000_001n],
    ['a header that is too short for its JSON', JSON.stringify(wellFormed), 29, 'BadHeader', 20n],
    ['an empty header', '', 0, 'BadHeader'],
    ['not JSON', '{"a": nope}', 0, 'BadHeader'],
    ['an array', '[]', 0, 'BadHeader'],
    ['null', 'null', 0, 'BadHeader'],
    [
      'bytes that are not UTF-8',
      Uint8Array.of(0x7b, 0x22, 0xff, 0xfe, 0x22, 0x3a, 0x31, 0x7d),
      0,
      'BadHeader',
    ],
    ['a byte order mark', Uint8Array.of(0xef, 0xbb, 0xbf, 0x7b, 0x7d), 0, 'BadHeader'],
    [
      'a name twice',
      `{"a":${JSON.stringify(wellFormed.a)},"a":${JSON.stringify(wellFormed.a)}}`,
      24,
      'BadHeader',
    ],
    [
      'a name twice, once escaped',
      `{"a":${JSON.stringify(wellFormed.a)},"\\u0061":${JSON.stringify(wellFormed.a)}}`,
      24,
      'BadHeader',
    ],
    [
      'a field twice',
      '{"a":{"dtype":"F32","dtype":"U8","shape":[24],"data_offsets":[0,24]}}',
      24,
      'BadHeader',
    ],
    [
      'metadata that is not strings',
      JSON.stringify({ __metadata__: { n: 1 }, ...wellFormed }),
      29,
      'BadHeader',
    ],
    ['a tensor that is null', '{"a":null}', 0, 'BadTensor'],
    ['an unknown dtype, beyond the data', entry({ dtype: 'F17' }), 23, 'Truncated'],
    [
      'an unknown dtype, whose offsets run backwards',
      entry({ dtype: 'F17', data_offsets: [24, 0] }),
      24,
      'BadTensor',
    ],
    ['an unknown dtype, with a negative dimension', entry({ dtype: 'F4', shape: [-1] }), 24, 'BadTensor'],
    [
      'an unknown dtype over the bytes of another',
      JSON.stringify({ ...wellFormed, b: { ...wellFormed.b, dtype: 'F6_E2M3', data_offsets: [20, 29] } }),
      29,
      'Overlap',
    ],
    ['a dtype that is a number', entry({ dtype: 32 }), 24, 'BadTensor'],
    ['no shape', entry({ shape: undefined }), 24, 'BadTensor'],
    ['a negative dimension', entry({ shape: [-2, -3] }), 24, 'BadTensor'],
    ['a fractional dimension', entry({ shape: [1.5, 4] }), 24, 'BadTensor'],
    ['dimensions beyond 2^53', entry({ shape: [2 ** 30, 2 ** 30] }), 24, 'BadTensor'],
    ['a dimension of 1e400', '{"a":{"dtype":"F32","shape":[1e400],"data_offsets":[0,24]}}', 24, 'BadTensor'],
    ['a shape larger than its bytes', entry({ shape: [2, 4] }), 24, 'BadTensor'],
    ['offsets that run backwards', entry({ data_offsets: [24, 0] }), 24, 'BadTensor'],
    ['one offset', entry({ data_offsets: [24] }), 24, 'BadTensor'],
    ['a negative offset', entry({ data_offsets: [-24, 0] }), 24, 'BadTensor'],
    ['data that ends early', JSON.stringify(wellFormed), 20, 'Truncated'],
    ['data that goes on', JSON.stringify(wellFormed), 30, 'Hole'],
    [
      'a hole between tensors',
      JSON.stringify({ ...wellFormed, b: { ...wellFormed.b, data_offsets: [25, 30] } }),
      30,
      'Hole',
    ],
    [
      'two tensors over the same bytes',
      JSON.stringify({ ...wellFormed, b: { ...wellFormed.b, data_offsets: [20, 25] } }),
      29,
      'Overlap',
    ],
    [
      'a tensor inside another',
      JSON.stringify({ ...wellFormed, b: { ...wellFormed.b, data_offsets: [4, 9] } }),
      24,
      'Overlap',
    ],
    ['nothing but nesting', '['.repeat(200_000), 0, 'BadHeader'],
  ]
  for (const [name, header, data, tag, length] of lies)
    it(name, async () => {
      const [first] = await faults(await file(header, data, length))
      expect(first._tag).toBe(tag)
      for (const field of ['at', 'subject', 'wanted', 'found', 'next'] as const)
        expect(first[field]).not.toBe('')
    })

  it('that is empty, or ends in its length', async () => {
    const path = fresh()
    await writeFile(path, '')
    expect((await faults(path))[0]._tag).toBe('Truncated')
    await writeFile(path, Uint8Array.of(1, 0, 0))
    expect((await faults(path))[0]).toMatchObject({ _tag: 'Truncated', found: '3 bytes' })
  })

  it('reports all faults, up to twenty', async () => {
    const bad = { dtype: 17, shape: [1], data_offsets: [0, 4] }
    expect(await faults(await file(JSON.stringify({ a: bad, b: bad, c: bad }), 4))).toHaveLength(3)
    const many = Object.fromEntries(Array.from({ length: 500 }, (_, i) => [`t${i}`, bad]))
    expect(await faults(await file(JSON.stringify(many), 4))).toHaveLength(20)
  })

  it('is missing, or is no regular file', async () => {
    expect((await faults(join(folder, 'missing')))[0]).toMatchObject({ _tag: 'CannotRead' })
    expect((await faults(folder))[0]).toMatchObject({ _tag: 'CannotRead', found: 'it is a directory' })
  })

  it.runIf(process.platform === 'linux')('is a FIFO or a device: neither is waited for', async () => {
    const fifo = join(folder, 'fifo')
    expect(spawnSync('mkfifo', [fifo]).status).toBe(0)
    expect((await faults(fifo))[0]).toMatchObject({
      _tag: 'CannotRead',
      found: expect.stringMatching(/^it is a FIFO/),
    })
    expect((await faults('/dev/zero'))[0]).toMatchObject({ _tag: 'CannotRead', found: 'it is a device' })
    for (const path of [fifo, '/dev/null'])
      expect(await writeSafetensors(path, [])()).toMatchObject({
        _tag: 'Left',
        left: { _tag: 'CannotWrite' },
      })
    expect((await stat('/dev/null')).isCharacterDevice()).toBe(true)
  })

  it('holds values of any length and depth, and is reported in short sentences', async () => {
    const nested = (open: string, close: string) => `${open.repeat(300_000)}1${close.repeat(300_000)}`
    const headers = [
      `{"a":"${'x'.repeat(11e6)}"}`,
      `{"a":"${'\\n'.repeat(3e6)}"}`,
      `{"a":${nested('[', ']')}}`,
      `{"a":${nested('{"b":', '}')}}`,
      `{"a":{"dtype":${nested('[', ']')}}}`,
      `{"a":{"dtype":"F32","shape":${nested('[', ']')}}}`,
      `{"__metadata__":${nested('[', ']')}}`,
    ]
    for (const header of headers) {
      const [{ found, wanted }] = await faults(await file(header, 0))
      expect(found.length).toBeLessThan(200)
      expect(`${wanted} ${found}`).not.toMatch(/call stack|undefined.*undefined/)
    }
  })

  it('with any byte of its header changed is refused, or its tensors still cover the data', async () => {
    const whole = new Uint8Array(await readFile(await file(JSON.stringify(wellFormed), 29)))
    const path = fresh()
    await fc.assert(
      fc.asyncProperty(fc.nat(whole.length - 30), fc.integer({ min: 1, max: 255 }), async (at, change) => {
        const bytes = whole.slice()
        bytes[at] = bytes[at]! ^ change
        await writeFile(path, bytes)
        const opened = await safetensors(path)()
        if (E.isLeft(opened)) return
        const { tensors, foreign, close } = opened.right
        for (const { offset, bytes: size } of tensors.values())
          expect(offset + size).toBeLessThanOrEqual(bytes.length)
        expect(tensors.size + foreign.size).toBeGreaterThan(0)
        await close()
      }),
      { numRuns: runs(400) },
    )
  })
})

describe('the writer', () => {
  it('leaves no incomplete file behind', async () => {
    const path = fresh()
    const short = await writeSafetensors(path, [
      { name: 'a', dtype: 'f32', shape: [2], bytes: new Uint8Array(4) },
    ])()
    expect(short).toMatchObject({
      _tag: 'Left',
      left: { _tag: 'CannotWrite', wanted: '8 bytes', found: '4 bytes' },
    })
    await expect(open(path)).rejects.toThrow(/ENOENT/)
    const nowhere = await writeSafetensors(join(folder, 'no', 'such', 'folder'), [])()
    expect(nowhere).toMatchObject({ _tag: 'Left', left: { _tag: 'CannotWrite' } })
  })

  it('and the reader take file URLs', async () => {
    const url = pathToFileURL(fresh())
    const entry = { name: 'a', dtype: 'u8', shape: [1], bytes: Uint8Array.of(7) } as const
    expect(await writeSafetensors(url, [entry])()).toMatchObject({ _tag: 'Right' })
    await using file = orThrow(await safetensors(url)())
    expect([file.path, ...file.tensors.keys()]).toEqual([fileURLToPath(url), 'a'])
    const elsewhere = new URL('https://example.org/a.safetensors')
    expect(await safetensors(elsewhere)()).toMatchObject({ left: [{ _tag: 'CannotRead' }] })
    expect(await writeSafetensors(elsewhere, [entry])()).toMatchObject({ left: { _tag: 'CannotWrite' } })
  })

  it('refuses a name twice', async () => {
    const one = { name: 'a', dtype: 'u8', shape: [1], bytes: Uint8Array.of(1) } as const
    expect(await writeSafetensors(fresh(), [one, one])()).toMatchObject({ _tag: 'Left' })
  })
})

it('repeated keys are found at every depth, and not across objects', () => {
  expect(repeatedKeys('{"a":{"x":1},"b":{"x":1},"c":["x",{"y":1,"y":2}],"a":"\\"a\\":"}', 9)).toEqual([
    'y',
    'a',
  ])
})
