// Parameters from a .safetensors file. Every field of the header is checked; the bytes are read directly into
// the parameter.
import { type FileHandle, open } from 'node:fs/promises'
import * as E from 'fp-ts/lib/Either.js'
import { render } from '../../dsl/ir/messages.js'
import { type BoundSpec, showSpec } from '../../dsl/ir/tensor.js'
import { lending } from '../lending.js'
import { type AwaitableTask, task } from '../task.js'
import { describe } from '../values.js'
import {
  type Faults,
  type Header,
  headerLength,
  readHeader,
  type SafetensorsFault,
  type StoredTensor,
  shownType,
} from './safetensors/header.js'
import { irregular, pathOf, readFlags } from './whole.js'

export type {
  Faults as SafetensorsFaults,
  SafetensorsFault,
  SafetensorsTag,
  StoredTensor,
} from './safetensors/header.js'
export { type TensorToWrite, writeSafetensors } from './safetensors/write.js'

/**
 * Fills a parameter's bytes, for `open(plan, { params })`, or any others. Rejects with a `SafetensorsError`.
 * Memory of a pinned block that is freed meanwhile goes to nobody before the read has ended.
 */
export type ParamSource = (
  into: Uint8Array,
  spec?: BoundSpec & { readonly name?: string; readonly bytes?: number },
) => Promise<void>

/** The error of a `ParamSource`: the fault as data, and as a sentence. */
export class SafetensorsError extends Error {
  constructor(readonly fault: SafetensorsFault) {
    super(render(fault))
    this.name = 'SafetensorsError'
  }
}

export interface Safetensors extends AsyncDisposable {
  readonly path: string
  /** The tensors by name, in the order of the header. */
  readonly tensors: ReadonlyMap<string, StoredTensor>
  /** Tensors whose element type Braid does not compute with, or does not know: by name, the type. */
  readonly foreign: ReadonlyMap<string, string>
  readonly metadata: Readonly<Record<string, string>>
  /** Reads one tensor. Rejects if the file has no such tensor, or the parameter has another type or size. */
  source(name: string): ParamSource
  /** Idempotent. */
  close(): Promise<void>
}

// Reads of 8 MiB keep a disk busy, and let other reads of the thread pool run in between.
const chunk = 8 << 20

const readFully = async (file: FileHandle, into: Uint8Array, position: number): Promise<number> => {
  let done = 0
  while (done < into.byteLength) {
    const { bytesRead } = await file.read(
      into,
      done,
      Math.min(chunk, into.byteLength - done),
      position + done,
    )
    if (bytesRead === 0) break
    done += bytesRead
  }
  return done
}

/** Why a tensor of the file cannot fill a parameter; undefined where it can. */
const mismatch = (
  path: string,
  name: string,
  header: Header,
  into: Uint8Array,
  spec: BoundSpec | undefined,
): SafetensorsFault | undefined => {
  const tensor = header.tensors.get(name)
  const fault = (wanted: string, found: string, next: string): SafetensorsFault => ({
    _tag: 'Mismatch',
    at: path,
    subject: name,
    wanted,
    found,
    next,
  })
  if (!tensor) {
    const type = header.foreign.get(name)
    return type !== undefined
      ? fault(
          'an element type that Braid computes with: F32, F16, BF16, U8, I32',
          shownType(type),
          'convert the tensor',
        )
      : fault(
          'a tensor of this name',
          [...header.tensors.keys()].slice(0, 8).join(', ') || 'none at all',
          'use one of the names found',
        )
  }
  const sameShape =
    spec &&
    spec.shape.length === tensor.shape.length &&
    spec.shape.every((size, axis) => size === tensor.shape[axis])
  if (spec && (spec.dtype !== tensor.dtype || !sameShape))
    return fault(showSpec(spec), showSpec(tensor), 'declare it in the graph as the file has it')
  if (into.byteLength !== tensor.bytes)
    return fault(
      `${into.byteLength} bytes`,
      `${tensor.bytes} bytes, ${showSpec(tensor)}`,
      'declare it in the graph as the file has it',
    )
  return undefined
}

const reader = (path: string, file: FileHandle, header: Header): Safetensors => {
  let closing: Promise<void> | undefined
  const close = () => (closing ??= file.close())
  const source =
    (name: string): ParamSource =>
    async (into, spec) => {
      const fault = mismatch(path, name, header, into, spec)
      if (fault) throw new SafetensorsError(fault)
      const { offset, bytes } = header.tensors.get(name)!
      const done = await lending(into, () => readFully(file, into, offset))
      if (done !== bytes)
        throw new SafetensorsError({
          _tag: 'Truncated',
          at: path,
          subject: name,
          wanted: `${bytes} bytes`,
          found: `${done}: the file has shrunk since it was opened`,
          next: 'write the file again',
        })
    }
  return {
    path,
    tensors: header.tensors,
    foreign: header.foreign,
    metadata: header.metadata,
    source,
    close,
    [Symbol.asyncDispose]: close,
  }
}

/** Opens a .safetensors file, by its path or URL, and checks all of its header. The file stays open until `close`. */
export const safetensors = (location: string | URL): AwaitableTask<Faults, Safetensors> =>
  task(async () => {
    const path = pathOf(location)
    let file: FileHandle | undefined
    try {
      file = await open(path, readFlags)
      const stats = await file.stat()
      const found = irregular(stats)
      if (found !== undefined) throw new Error(`it is ${found}`)
      const { size } = stats
      const first = new Uint8Array(Math.min(8, size))
      await readFully(file, first, 0)
      const length = headerLength(first, size, path)
      const bytes = new Uint8Array(E.isRight(length) ? length.right : 0)
      await readFully(file, bytes, 8)
      const header = E.isLeft(length) ? length : readHeader(bytes, size, path)
      if (E.isRight(header)) return E.right(reader(path, file, header.right))
      await file.close()
      return header
    } catch (error) {
      await file?.close().catch(() => undefined)
      const found = (error as Error).message
      return E.left([
        {
          _tag: 'CannotRead',
          at: typeof path === 'string' ? path : 'path',
          subject: typeof path === 'string' ? path : 'path',
          wanted: 'a regular file that can be read',
          found: typeof path === 'string' ? found : describe(path),
          next: 'check the path and its permissions',
        },
      ])
    }
  })
