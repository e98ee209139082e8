// The weights as a .safetensors file: created from a seed where there is none, then read like any other file
// of these names and shapes.
import { createHash } from 'node:crypto'
import { accessSync, constants, existsSync, mkdirSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Safetensors, safetensors, writeSafetensors } from 'braid-gpu/runtime'
import * as E from 'fp-ts/lib/Either.js'
import { layers, weightName, width } from './network.js'

const seed = 20_260_701

/** xorshift32: the same weights on every machine. */
const randomNumbers = (start: number) => {
  let state = start | 0 || 1
  return () => {
    state ^= state << 13
    state ^= state >>> 17
    state ^= state << 5
    return (state >>> 0) / 2 ** 32
  }
}

// Uniform in ±√(6 / width): a layer of relu then keeps the mean square of its input through any number of
// layers.
const layerWeights = (layer: number): Uint8Array => {
  const next = randomNumbers(seed + layer * 7919)
  const limit = Math.sqrt(6 / width)
  const values = Float32Array.from({ length: width * width }, () => (2 * next() - 1) * limit)
  return new Uint8Array(values.buffer)
}

const folderOf = (from: string): string => {
  for (let folder = from; ; folder = dirname(folder)) {
    if (existsSync(join(folder, 'package.json'))) return folder
    if (folder === dirname(folder)) return join(tmpdir(), 'braid')
  }
}

/** The folder of the package, wherever this file was compiled to. */
export const checkout = folderOf(dirname(fileURLToPath(import.meta.url)))

const canWrite = (folder: string): boolean => {
  try {
    mkdirSync(folder, { recursive: true })
    accessSync(folder, constants.W_OK)
    return true
  } catch {
    return false
  }
}

/** For files that later runs use again: `.cache/`, which git ignores, where the checkout can be written. */
export const cacheFolder = (): string => {
  const inCheckout = join(checkout, '.cache')
  return canWrite(inCheckout) ? inCheckout : join(tmpdir(), 'braid')
}

/** Opens the file and checks that it has every layer's weights. Throws an error that says what is wrong. */
const openWhole = async (path: string): Promise<Safetensors> => {
  const opened = await safetensors(path)()
  if (E.isLeft(opened))
    throw new Error(
      opened.left
        .map(f => `${f.at}: ${f.subject}: wanted ${f.wanted}, found ${f.found}; ${f.next}`)
        .join('\n'),
    )
  for (let layer = 0; layer < layers; layer++) {
    const tensor = opened.right.tensors.get(weightName(layer))
    if (tensor?.dtype === 'f32' && tensor.shape.length === 2 && tensor.shape.every(size => size === width))
      continue
    await opened.right.close()
    const found = tensor ? `${tensor.dtype}[${tensor.shape.join(', ')}]` : 'nothing'
    throw new Error(
      `${path}: ${weightName(layer)}: wanted f32[${width}, ${width}], found ${found}; give another file`,
    )
  }
  return opened.right
}

const digestOf = async (file: Safetensors): Promise<string> => {
  const hash = createHash('sha256')
  const bytes = new Uint8Array(4 * width * width)
  for (let layer = 0; layer < layers; layer++) {
    await file.source(weightName(layer))(bytes)
    hash.update(bytes)
  }
  return hash.digest('hex')
}

/** The file that an earlier run made, if it is as it was made: its digest stands in it. */
const openMade = async (path: string): Promise<Safetensors | undefined> => {
  const file = await openWhole(path).catch(() => undefined)
  if (file === undefined) return undefined
  const isWhole = await digestOf(file).then(
    digest => digest === file.metadata['sha256'],
    () => false,
  )
  if (isWhole) return file
  await file.close()
  return undefined
}

const make = async (path: string): Promise<void> => {
  mkdirSync(dirname(path), { recursive: true })
  const weights = Array.from({ length: layers }, (_, layer) => layerWeights(layer))
  const entries = weights.map((bytes, layer) => ({
    name: weightName(layer),
    dtype: 'f32' as const,
    shape: [width, width],
    bytes,
  }))
  const hash = createHash('sha256')
  for (const bytes of weights) hash.update(bytes)
  const written = await writeSafetensors(path, entries, { seed: String(seed), sha256: hash.digest('hex') })()
  if (E.isLeft(written)) throw new Error(`${written.left.at}: ${written.left.found}; ${written.left.next}`)
}

/**
 * Opens the file of weights that the user gave. Without one, opens the file that an earlier run left in
 * `folder`, or makes it where it is missing or damaged.
 */
export const openWeights = async (
  given?: string,
  folder = cacheFolder(),
): Promise<{ path: string; file: Safetensors; made: boolean }> => {
  if (given !== undefined) return { path: given, file: await openWhole(given), made: false }
  const path = join(folder, `weights-${layers}x${width}-f32-seed${seed}.safetensors`)
  const there = await openMade(path)
  if (there) return { path, file: there, made: false }
  await make(path)
  return { path, file: await openWhole(path), made: true }
}
