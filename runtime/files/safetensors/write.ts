import { statSync } from 'node:fs'
import { open, rename, rm } from 'node:fs/promises'
import * as E from 'fp-ts/lib/Either.js'
import { type BoundSpec, type DType, tensorBytes } from '../../../dsl/ir/tensor.js'
import { type AwaitableTask, effectTask } from '../../task.js'
import { describe } from '../../values.js'
import { irregular, partOf, pathOf, targetOf } from '../whole.js'
import type { SafetensorsFault } from './header.js'

/** A tensor to write: all its bytes, or chunks that are made while the file is written. */
export interface TensorToWrite extends BoundSpec {
  readonly name: string
  readonly bytes: Uint8Array | (() => Iterable<Uint8Array> | AsyncIterable<Uint8Array>)
}

const typeNames: Readonly<Record<DType, string>> = {
  f32: 'F32',
  f16: 'F16',
  bf16: 'BF16',
  u8: 'U8',
  i32: 'I32',
}

// The JSON is padded with spaces so that the data begins on a multiple of 8, as other writers of the format
// do.
const headerBytes = (
  entries: readonly TensorToWrite[],
  metadata: Readonly<Record<string, string>>,
): Uint8Array => {
  // Without a prototype: a tensor may have the name __proto__.
  const header = Object.create(null) as Record<string, unknown>
  if (Object.keys(metadata).length > 0) header['__metadata__'] = metadata
  let offset = 0
  for (const entry of entries) {
    const end = offset + tensorBytes(entry)
    header[entry.name] = { dtype: typeNames[entry.dtype], shape: entry.shape, data_offsets: [offset, end] }
    offset = end
  }
  const json = new TextEncoder().encode(JSON.stringify(header))
  const padded = new Uint8Array(8 + Math.ceil(json.length / 8) * 8).fill(0x20)
  new DataView(padded.buffer).setBigUint64(0, BigInt(padded.length - 8), true)
  padded.set(json, 8)
  return padded
}

const entryForm = "[{ name: 'w', dtype: 'f32', shape: [2, 2], bytes: new Uint8Array(16) }]"

const isEntry = (value: unknown): boolean => {
  const { name, dtype, shape, bytes } = (value ?? {}) as Partial<Record<keyof TensorToWrite, unknown>>
  const sized = Array.isArray(shape) && shape.every(size => Number.isSafeInteger(size) && size >= 0)
  const typed = typeof dtype === 'string' && Object.hasOwn(typeNames, dtype)
  return (
    typeof name === 'string' && typed && sized && (bytes instanceof Uint8Array || typeof bytes === 'function')
  )
}

// Names the field that is wrong.
const described = (value: unknown): string => {
  if (typeof value !== 'object' || value === null) return describe(value)
  const fields = ['name', 'dtype', 'shape', 'bytes'].map(
    field => `${field}: ${describe((value as Readonly<Record<string, unknown>>)[field])}`,
  )
  return `one with ${fields.join(', ')}`
}

/**
 * Writes a .safetensors file, chunk by chunk, when it is called or awaited. The file has another name until its
 * last byte is written, so a file with the final name is complete.
 */
export const writeSafetensors = (
  location: string | URL,
  entries: readonly TensorToWrite[],
  metadata: Readonly<Record<string, string>> = {},
): AwaitableTask<SafetensorsFault, void> =>
  effectTask('writeSafetensors(…)', async () => {
    const path = pathOf(location)
    const fault = (subject: string, wanted: string, found: string, next: string) =>
      E.left<SafetensorsFault>({
        _tag: 'CannotWrite',
        at: typeof path === 'string' && path !== '' ? path : 'path',
        subject,
        wanted,
        found,
        next,
      })
    if (typeof path !== 'string' || path === '')
      return fault('path', 'the path of a file', describe(path), "give it as a string: 'weights.safetensors'")
    if (!Array.isArray(entries))
      return fault('entries', 'an array of tensors', describe(entries), `give ${entryForm}`)
    const wrong = entries.findIndex(entry => !isEntry(entry))
    if (wrong >= 0)
      return fault(`entries[${wrong}]`, 'a tensor to write', described(entries[wrong]), `give ${entryForm}`)
    const names = new Set(entries.map(entry => entry.name))
    if (names.size !== entries.length)
      return fault('entries', 'one entry of each name', 'a name twice', 'rename one of them')
    if (names.has('__metadata__'))
      return fault(
        '__metadata__',
        'a name that the format does not keep for itself',
        '__metadata__',
        'rename it',
      )
    const isText =
      typeof metadata === 'object' &&
      metadata !== null &&
      Object.values(metadata).every(text => typeof text === 'string')
    if (!isText)
      return fault('metadata', 'an object of strings', describe(metadata), "give strings: { epoch: '5' }")
    let part: string | undefined
    let writing: string | undefined
    try {
      const stats = statSync(path, { throwIfNoEntry: false })
      const found = stats && irregular(stats)
      if (found !== undefined)
        return fault(path, 'a regular file', `it is ${found}`, 'choose another path; its file is replaced')
      const target = targetOf(path, stats)
      part = partOf(target)
      const file = await open(part, 'wx')
      try {
        await file.writeFile(headerBytes(entries, metadata))
        for (const entry of entries) {
          writing = entry.name
          let written = 0
          for await (const chunk of typeof entry.bytes === 'function' ? entry.bytes() : [entry.bytes]) {
            if (!((chunk as unknown) instanceof Uint8Array))
              return fault(entry.name, 'chunks of bytes: Uint8Array', describe(chunk), `give ${entryForm}`)
            await file.writeFile(chunk)
            written += chunk.byteLength
          }
          if (written !== tensorBytes(entry))
            return fault(
              entry.name,
              `${tensorBytes(entry)} bytes`,
              `${written} bytes`,
              'give as many bytes as the shape says',
            )
        }
      } finally {
        await file.close()
      }
      await rename(part, target)
      return E.right(undefined)
    } catch (error) {
      const isOfSystem = typeof (error as NodeJS.ErrnoException | undefined)?.syscall === 'string'
      if (writing !== undefined && !isOfSystem)
        return fault(
          writing,
          'a source that gives bytes',
          `one that threw: ${error instanceof Error ? error.message : describe(error)}`,
          'correct the bytes of this tensor',
        )
      return fault(
        path,
        'a file that can be written',
        (error as Error).message,
        'choose a folder that exists, has room and may be written',
      )
    } finally {
      if (part !== undefined) await rm(part, { force: true })
    }
  })
