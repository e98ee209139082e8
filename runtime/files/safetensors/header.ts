// Reads and checks the header of a .safetensors file: an 8-byte little-endian length, that many bytes of
// JSON, then the tensors' bytes, each of which must belong to exactly one tensor of the header.
// https://github.com/huggingface/safetensors#format
import * as E from 'fp-ts/lib/Either.js'
import type { ReadonlyNonEmptyArray } from 'fp-ts/lib/ReadonlyNonEmptyArray.js'
import type { Fault } from '../../../dsl/ir/fault.js'
import { isRecord } from '../../../dsl/ir/record.js'
import { show as showValue } from '../../../dsl/ir/show.js'
import type { DType } from '../../../dsl/ir/tensor.js'

export type SafetensorsTag =
  | 'CannotRead' // the operating system refused
  | 'Truncated' // the file is shorter than its header says
  | 'BadHeader' // not JSON, not UTF-8, too long, or a name stands twice
  | 'BadTensor' // the dtype, shape or offsets of one entry are invalid
  | 'Overlap' // two tensors share bytes
  | 'Hole' // bytes that no tensor owns
  | 'Mismatch' // no tensor of the name, type and size that the parameter needs
  | 'CannotWrite'

export type SafetensorsFault = Fault<SafetensorsTag>
export type Faults = ReadonlyNonEmptyArray<SafetensorsFault>

/** One tensor of the file. `offset` counts from the file's first byte. */
export interface StoredTensor {
  readonly dtype: DType
  readonly shape: readonly number[]
  readonly bytes: number
  readonly offset: number
}

export interface Header {
  readonly tensors: ReadonlyMap<string, StoredTensor>
  /**
   * Well-formed tensors whose element type Braid does not compute with, such as I64, or does not know, such as
   * one that the format got later: by name, the type.
   */
  readonly foreign: ReadonlyMap<string, string>
  readonly metadata: Readonly<Record<string, string>>
}

/** The format's own limit on the header's length. */
export const longestHeader = 100_000_000

export const dtypeNames: Readonly<Record<string, DType>> = {
  F32: 'f32',
  F16: 'f16',
  BF16: 'bf16',
  U8: 'u8',
  I32: 'i32',
}
/** Bytes of an element. Of types that are not in it the shape does not tell the bytes. */
const sizes: Readonly<Record<string, number>> = {
  BOOL: 1,
  U8: 1,
  I8: 1,
  F8_E5M2: 1,
  F8_E4M3: 1,
  F8_E8M0: 1,
  I16: 2,
  U16: 2,
  F16: 2,
  BF16: 2,
  I32: 4,
  U32: 4,
  F32: 4,
  I64: 8,
  U64: 8,
  F64: 8,
  C64: 8,
}

const isComputed = (type: string): boolean => Object.hasOwn(dtypeNames, type)

/** The type of a file's tensor as messages write it. */
export const shownType = (type: string): string => (/^\w{1,40}$/.test(type) ? type : show(type))

type Report = (tag: SafetensorsTag, subject: string, wanted: string, found: string, next: string) => void
const again = 'write the file again, or take another copy of it'
const most = 20

// A header may hold anything of any depth and length, of which a message shows the beginning.
const show = (value: unknown): string =>
  typeof value === 'string' ? JSON.stringify(value.slice(0, 40)) : showValue(value)

const isSize = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0

/** Where the string that begins at `start` of valid JSON text ends: after its closing quote. */
const endOfString = (json: string, start: number): number => {
  for (let at = start + 1; ; at++) {
    at = json.indexOf('"', at)
    let backslashes = 0
    while (json[at - 1 - backslashes] === '\\') backslashes++
    if (backslashes % 2 === 0) return at + 1
  }
}

/**
 * Keys that stand twice in one object of valid JSON text, the first `limit` of them: JSON.parse silently
 * keeps the last value. By hand, since a regular expression of strings overflows the stack at some million
 * characters.
 */
export const repeatedKeys = (json: string, limit: number): readonly string[] => {
  const repeated: string[] = []
  const open: (Set<string> | undefined)[] = []
  for (let at = 0; at < json.length && repeated.length < limit; at++) {
    const token = json[at]
    if (token === '{') open.push(new Set())
    else if (token === '[') open.push(undefined)
    else if (token === '}' || token === ']') open.pop()
    else if (token === '"') {
      const end = endOfString(json, at)
      let next = end
      while (json[next] === ' ' || json[next] === '\n' || json[next] === '\r' || json[next] === '\t') next++
      if (json[next] === ':') {
        const raw = json.slice(at, end)
        const name = raw.includes('\\') ? (JSON.parse(raw) as string) : raw.slice(1, -1)
        const known = open.at(-1)
        if (known?.has(name)) repeated.push(name)
        known?.add(name)
      }
      at = next - 1
    }
  }
  return repeated
}

/** The JSON of the header as an object, or undefined after reporting why not. */
const parse = (header: Uint8Array, report: Report): Readonly<Record<string, unknown>> | undefined => {
  let text: string
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(header)
  } catch {
    report('BadHeader', 'header', 'UTF-8 text', 'bytes that are not UTF-8', again)
    return undefined
  }
  try {
    const value: unknown = JSON.parse(text)
    if (!isRecord(value)) {
      report('BadHeader', 'header', 'a JSON object of tensors by name', show(value), again)
      return undefined
    }
    for (const name of repeatedKeys(text, most))
      report('BadHeader', name, 'one entry of this name', 'two', again)
    return value
  } catch (error) {
    report('BadHeader', 'header', 'JSON', (error as Error).message, again)
    return undefined
  }
}

interface Entry extends StoredTensor {
  readonly name: string
  readonly type: string
}

const readEntry = (
  name: string,
  value: unknown,
  dataStart: number,
  dataBytes: number,
  report: Report,
): Entry | undefined => {
  const wrong = (wanted: string, found: string): undefined => {
    report('BadTensor', name, wanted, found, again)
    return undefined
  }
  if (!isRecord(value)) return wrong('{ dtype, shape, data_offsets }', show(value))
  const { dtype: type, shape, data_offsets: range } = value
  if (typeof type !== 'string')
    return wrong(`a dtype: ${Object.keys(dtypeNames).join(', ')}, or another of the format`, show(type))
  if (!Array.isArray(shape) || !shape.every(isSize))
    return wrong('a shape of whole numbers of 0 or more', show(shape))
  if (!Array.isArray(range) || range.length !== 2 || !range.every(isSize))
    return wrong('two data_offsets of 0 or more', show(range))
  const [begin, end] = range as [number, number]
  const size = Object.hasOwn(sizes, type) ? sizes[type]! : undefined
  const bytes =
    size === undefined
      ? end - begin
      : (shape as number[]).reduce((product, dimension) => product * dimension, size)
  if (!Number.isSafeInteger(bytes)) return wrong('fewer than 2^53 bytes', `shape ${show(shape)}`)
  if (end < begin || end - begin !== bytes)
    return wrong(
      size === undefined ? 'an end at or after the begin' : `${bytes} bytes for ${type} ${show(shape)}`,
      `data_offsets ${show(range)}, which are ${end - begin}`,
    )
  if (end > dataBytes) {
    report(
      'Truncated',
      name,
      `bytes ${begin} to ${end} of the data`,
      `${dataBytes} bytes of data in the file`,
      again,
    )
    return undefined
  }
  return {
    name,
    type,
    dtype: isComputed(type) ? dtypeNames[type]! : 'u8',
    shape: shape as number[],
    bytes,
    offset: dataStart + begin,
  }
}

// Every byte after the header must belong to exactly one tensor: otherwise the file is broken, or made to
// mislead.
const checkCover = (
  entries: readonly Entry[],
  dataStart: number,
  dataBytes: number,
  report: Report,
): void => {
  let reached = dataStart
  let before = 'the header'
  for (const entry of [...entries].sort((a, b) => a.offset - b.offset || a.bytes - b.bytes)) {
    if (entry.offset < reached)
      report(
        'Overlap',
        entry.name,
        `bytes from ${reached - dataStart} on, after ${before}`,
        `bytes from ${entry.offset - dataStart} on`,
        again,
      )
    else if (entry.offset > reached)
      report(
        'Hole',
        entry.name,
        `bytes from ${reached - dataStart} on, right after ${before}`,
        `bytes from ${entry.offset - dataStart} on`,
        again,
      )
    if (entry.offset + entry.bytes >= reached) before = entry.name
    reached = Math.max(reached, entry.offset + entry.bytes)
  }
  if (reached !== dataStart + dataBytes)
    report(
      'Hole',
      'data',
      `${reached - dataStart} bytes, as the header says`,
      `${dataBytes} bytes in the file`,
      again,
    )
}

const readMetadata = (value: unknown, report: Report): Readonly<Record<string, string>> => {
  if (value === undefined || value === null) return {}
  if (isRecord(value) && Object.values(value).every(text => typeof text === 'string'))
    return value as Record<string, string>
  report('BadHeader', '__metadata__', 'an object of strings', show(value), again)
  return {}
}

/** The header's length from the first 8 bytes, checked against the size of the file. */
export const headerLength = (first: Uint8Array, fileBytes: number, at: string): E.Either<Faults, number> => {
  const fault = (tag: SafetensorsTag, wanted: string, found: string) =>
    E.left<Faults, number>([{ _tag: tag, at, subject: 'header length', wanted, found, next: again }])
  if (first.byteLength < 8) return fault('Truncated', 'at least 8 bytes', `${first.byteLength} bytes`)
  const length = new DataView(first.buffer, first.byteOffset, 8).getBigUint64(0, true)
  if (length > BigInt(longestHeader))
    return fault('BadHeader', `at most ${longestHeader} bytes of header`, `${length} bytes`)
  if (length + 8n > BigInt(fileBytes))
    return fault('Truncated', `${length} bytes of header`, `a file of ${fileBytes} bytes`)
  return E.right(Number(length))
}

/**
 * The whole header, or its errors (the first 20). `header` holds the JSON's bytes, `at` is the file's path.
 */
export const readHeader = (header: Uint8Array, fileBytes: number, at: string): E.Either<Faults, Header> => {
  const faults: SafetensorsFault[] = []
  const report: Report = (tag, subject, wanted, found, next) =>
    void (faults.length < most && faults.push({ _tag: tag, at, subject, wanted, found, next }))
  const dataStart = 8 + header.byteLength
  const dataBytes = fileBytes - dataStart
  const given = parse(header, report) ?? {}
  const metadata = readMetadata(given['__metadata__'], report)
  const entries = Object.entries(given)
    .filter(([name]) => name !== '__metadata__')
    .map(([name, value]) => readEntry(name, value, dataStart, dataBytes, report))
  const sound = entries.filter(entry => entry !== undefined)
  if (faults.length === 0) checkCover(sound, dataStart, dataBytes, report)
  const [first, ...rest] = faults
  if (first) return E.left([first, ...rest])
  const isKnown = (entry: Entry): boolean => isComputed(entry.type)
  const tensors = new Map(
    sound
      .filter(isKnown)
      .map(({ name, dtype, shape, bytes, offset }) => [name, { dtype, shape, bytes, offset }] as const),
  )
  const foreign = new Map(
    sound.filter(entry => !isKnown(entry)).map(({ name, type }) => [name, type] as const),
  )
  return E.right({ tensors, foreign, metadata })
}
