import { gunzipSync } from 'node:zlib'
import * as E from 'fp-ts/lib/Either.js'
import type { Fault } from '../../dsl/ir/fault.js'
import { readWhole } from '../files/whole.js'
import { type AllocatorTrace, parseTrace } from './trace.js'

/** A little less than the longest string of V8. */
const mostText = 2 ** 29 - 2 ** 16

const bad = (at: string, wanted: string, found: string, next: string): E.Either<readonly Fault[], never> =>
  E.left([{ _tag: 'BadFile', at, subject: 'trace', wanted, found, next }])

const words = (error: unknown): string => (error instanceof Error ? error.message : String(error))

const unpacked = (path: string, data: Uint8Array): E.Either<readonly Fault[], Uint8Array> => {
  if (data[0] !== 0x1f || data[1] !== 0x8b) return E.right(data)
  try {
    return E.right(gunzipSync(data, { maxOutputLength: mostText }))
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ERR_BUFFER_TOO_LARGE')
      return bad(
        path,
        `a trace of at most ${mostText} bytes unpacked`,
        'a longer one',
        'cut the trace into shorter runs',
      )
    const cut = code === 'Z_BUF_ERROR'
    return bad(
      path,
      'a whole gzip file',
      cut ? 'one that ends too soon' : words(error),
      'copy or record it again',
    )
  }
}

const looksLike = (data: Uint8Array): string => {
  if (data.length === 0) return 'an empty file'
  if (data[0] === 0x80) return "a Python pickle; PyTorch's snapshots are no traces"
  if (data[0] === 0x50 && data[1] === 0x4b) return 'a zip archive'
  return `a file that begins with ${JSON.stringify(new TextDecoder().decode(data.subarray(0, 16)))}`
}

/** Reads a trace from a file: JSON, gzipped or not. */
export const readTrace = (path: string): E.Either<readonly Fault[], AllocatorTrace> => {
  let data: Uint8Array
  try {
    data = readWhole(path)
  } catch (error) {
    return bad(
      path,
      'a trace file that can be read',
      words(error),
      'give the path of a trace: name.json.gz, or name.json',
    )
  }
  const text = unpacked(path, data)
  if (E.isLeft(text)) return text
  const json = text.right
  const first = json.find(byte => byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09)
  if (first !== 0x7b)
    return bad(
      path,
      'JSON, gzipped or not: { name, torch, streams, ops }',
      looksLike(json),
      'give a trace of an allocator',
    )
  if (json.length > mostText)
    return bad(
      path,
      `a trace of at most ${mostText} bytes`,
      `${json.length}`,
      'cut the trace into shorter runs',
    )
  let value: unknown
  try {
    value = JSON.parse(new TextDecoder().decode(json))
  } catch (error) {
    return bad(path, 'JSON', words(error), 'copy or record it again')
  }
  const parsed = parseTrace(value)
  return E.isRight(parsed)
    ? parsed
    : E.left(parsed.left.map(fault => ({ ...fault, at: `${path}: ${fault.at}` })))
}
