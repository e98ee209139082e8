// A GPT-2 checkpoint as a .safetensors file, with the names that GPT-2's has. Without one, a file with random
// weights of a seed is made.
import { existsSync, mkdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { orThrow } from 'braid-gpu'
import { type ParamSource, type Safetensors, safetensors, writeSafetensors } from 'braid-gpu/runtime'
import { cacheFolder } from '../weight-streaming/weights.js'

/** Sizes of a model. `dtype` is that of all its tensors, and of what is computed with them. */
export interface Model {
  readonly dtype: 'f32' | 'f16' | 'bf16'
  readonly width: number
  readonly layers: number
  readonly heads: number
  /** The most tokens: those that have a position. */
  readonly context: number
}

/** A byte is a token. */
export const vocabulary = 256

/** The tensors of a model by name. Matrices are [in, out], as the checkpoints of GPT-2 have them (Conv1D). */
export const tensorsOf = ({ width, layers, context }: Omit<Model, 'dtype' | 'heads'>) => {
  const tensors: Record<string, readonly number[]> = {
    'wte.weight': [vocabulary, width],
    'wpe.weight': [context, width],
  }
  const norm = (name: string): void => {
    tensors[`${name}.weight`] = [width]
    tensors[`${name}.bias`] = [width]
  }
  const product = (name: string, from: number, to: number): void => {
    tensors[`${name}.weight`] = [from, to]
    tensors[`${name}.bias`] = [to]
  }
  for (let layer = 0; layer < layers; layer++) {
    norm(`h.${layer}.ln_1`)
    product(`h.${layer}.attn.c_attn`, width, 3 * width)
    product(`h.${layer}.attn.c_proj`, width, width)
    norm(`h.${layer}.ln_2`)
    product(`h.${layer}.mlp.c_fc`, width, 4 * width)
    product(`h.${layer}.mlp.c_proj`, 4 * width, width)
  }
  norm('ln_f')
  return tensors
}

export interface Checkpoint {
  readonly path: string
  readonly model: Model
  /** Whether the weights are random ones. */
  readonly seeded: boolean
  /** The sources of the parameters, by name. */
  readonly params: Readonly<Record<string, ParamSource>>
  readonly file: Safetensors
}

/** What the files of Hugging Face write before each name, where the model is part of another. */
const prefix = 'transformer.'

const shown = (shape: readonly number[] | undefined): string => (shape ? `[${shape.join(', ')}]` : 'none')

/** The sizes of the model in a file, or an error that says what is wrong with it. */
const modelOf = (path: string, file: Safetensors, before: string, heads: number | undefined): Model => {
  const shapeOf = (name: string) => file.tensors.get(before + name)?.shape
  const bad = (name: string, wanted: string, found: string): Error =>
    new Error(`${path}: ${before}${name}: wanted ${wanted}, found ${found}`)
  const [bytes, width = 0] = shapeOf('wte.weight') ?? []
  if (bytes !== vocabulary)
    throw bad('wte.weight', `[${vocabulary}, width]: a token is a byte`, shown(shapeOf('wte.weight')))
  const [context = 0] = shapeOf('wpe.weight') ?? []
  let layers = 0
  while (file.tensors.has(`${before}h.${layers}.ln_1.weight`)) layers++
  const { dtype } = file.tensors.get(`${before}wte.weight`)!
  if (dtype !== 'f32' && dtype !== 'f16' && dtype !== 'bf16') throw bad('wte.weight', 'floats', dtype)
  for (const [name, shape] of Object.entries(tensorsOf({ width, layers, context }))) {
    const found = file.tensors.get(before + name)
    if (found?.dtype !== dtype || shown(found.shape) !== shown(shape))
      throw bad(name, `${dtype}${shown(shape)}`, found ? `${found.dtype}${shown(found.shape)}` : 'nothing')
  }
  // A checkpoint does not say how many heads there are; those of every GPT-2 have 64 elements.
  const count = heads ?? Number(file.metadata['heads'] ?? width / 64)
  if (!Number.isInteger(count) || count < 1 || width % count !== 0)
    throw new Error(
      `${path}: wanted a number of heads that divides the width of ${width}, found ${count}; give --heads`,
    )
  return { dtype, width, layers, heads: count, context }
}

const seed = 20_260_702
const small: Model = { dtype: 'f32', width: 64, layers: 2, heads: 4, context: 256 }

/** Uniform numbers of mean 0: a sum of `count` products with them is about as large as what they multiply. */
const uniform = (length: number, count: number, start: number): Float32Array => {
  let state = start | 1
  const limit = Math.sqrt(3 / count)
  return Float32Array.from({ length }, () => {
    state ^= state << 13
    state ^= state >>> 17
    state ^= state << 5
    return ((state >>> 0) / 2 ** 31 - 1) * limit
  })
}

const makeSmall = async (path: string): Promise<void> => {
  mkdirSync(dirname(path), { recursive: true })
  const entries = Object.entries(tensorsOf(small)).map(([name, shape], i) => {
    const length = shape.reduce((product, size) => product * size, 1)
    const values = /ln_.*weight$/.test(name)
      ? new Float32Array(length).fill(1)
      : uniform(length, shape[0]! === vocabulary ? 1 : shape[0]!, seed + 7919 * i)
    return { name, dtype: 'f32' as const, shape, bytes: new Uint8Array(values.buffer) }
  })
  orThrow(await writeSafetensors(path, entries, { seed: String(seed), heads: String(small.heads) })())
}

/** Opens the checkpoint that the user gave; without one, a small one with random weights. */
export const openCheckpoint = async (
  given?: string,
  heads?: number,
  folder = cacheFolder(),
): Promise<Checkpoint> => {
  const path = given ?? join(folder, `gpt-${small.layers}x${small.width}-f32-seed${seed}.safetensors`)
  if (given === undefined && !existsSync(path)) await makeSmall(path)
  const file = orThrow(await safetensors(path)())
  try {
    const before = file.tensors.has(`${prefix}wte.weight`) ? prefix : ''
    const model = modelOf(path, file, before, heads)
    const names = Object.keys(tensorsOf(model))
    const params = Object.fromEntries(names.map(name => [name, file.source(before + name)]))
    return { path, model, seeded: given === undefined, params, file }
  } catch (error) {
    await file.close()
    throw error
  }
}
