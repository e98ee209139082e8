// The file of weights that `npm start` makes: made once, used again, and made anew where it is damaged.
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { openWeights } from '../../examples/weight-streaming/weights.js'

const folder = mkdtempSync(join(tmpdir(), 'braid-weights-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const open = async (given?: string) => {
  const { path, file, made } = await openWeights(given, folder)
  await file.close()
  return { path, made }
}

describe('the weights of the example', async () => {
  const { path, made } = await open()
  const whole = readFileSync(path)

  it('are made once', async () => {
    expect(made).toBe(true)
    expect(await open()).toEqual({ path, made: false })
  })

  it.each([
    ['is empty', () => writeFileSync(path, '')],
    ['is cut', () => truncateSync(path, statSync(path).size - 1000)],
    [
      'has zeros in place of its last megabyte',
      () => writeFileSync(path, Buffer.from(whole).fill(0, whole.length - 2 ** 20)),
    ],
    [
      'is of an earlier version',
      () => writeFileSync(path, whole.toString('latin1').replace('sha256', 'sha255'), 'latin1'),
    ],
    ['is no weights', () => writeFileSync(path, 'something else')],
  ])('are made anew where the file %s', async (_, damage) => {
    damage()
    expect(await open()).toEqual({ path, made: true })
    expect(readFileSync(path).equals(whole)).toBe(true)
  })

  it('are never made in place of a file that the user gave', async () => {
    const own = join(folder, 'own.safetensors')
    await expect(open(own)).rejects.toThrow('ENOENT')
    writeFileSync(own, 'something else')
    await expect(open(own)).rejects.toThrow(own)
    expect(readFileSync(own, 'utf8')).toBe('something else')
    expect(existsSync(join(folder, 'braid'))).toBe(false)
  })
})
