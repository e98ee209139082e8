// The weights as a .safetensors file: created once from a seed, then read like any other file of these names
// and shapes.
import { existsSync, mkdirSync } from 'node:fs'
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

/** In `.cache/`, which git ignores, where the file stays for the next run. */
export const defaultPath = join(checkout, '.cache', `weights-${layers}x${width}-f32-seed${seed}.safetensors`)

const openWhole = async (path: string): Promise<Safetensors | undefined> => {
  if (!existsSync(path)) return undefined
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
      `${path}: ${weightName(layer)}: wanted f32[${width}, ${width}], found ${found}; ` +
        `give another file, or remove this one`,
    )
  }
  return opened.right
}

/**
 * Opens the file; at the default path it is created first if missing. Its header and size are checked every
 * time.
 */
export const openWeights = async (
  path: string,
  make: boolean,
): Promise<{ file: Safetensors; made: boolean }> => {
  const there = await openWhole(path)
  if (there) return { file: there, made: false }
  if (!make) throw new Error(`${path}: no such file`)
  mkdirSync(dirname(path), { recursive: true })
  const entries = Array.from({ length: layers }, (_, layer) => ({
    name: weightName(layer),
    dtype: 'f32' as const,
    shape: [width, width],
    bytes: () => [layerWeights(layer)],
  }))
  const written = await writeSafetensors(path, entries, { seed: String(seed) })()
  if (E.isLeft(written)) throw new Error(`${written.left.at}: ${written.left.found}; ${written.left.next}`)
  const file = await openWhole(path)
  if (!file) throw new Error(`${path}: was written and is gone`)
  return { file, made: true }
}
