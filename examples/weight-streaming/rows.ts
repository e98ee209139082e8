import { createReadStream } from 'node:fs'
import { rows, width } from './network.js'

const block = rows * width

/** The bytes of a file in blocks of 16 × 512, from its start again when it ends; `ticks` blocks in all. */
export async function* rowsOf(path: string, ticks: number): AsyncGenerator<Uint8Array> {
  const pending = new Uint8Array(block)
  let filled = 0
  for (let made = 0; made < ticks; ) {
    let bytesInFile = 0
    for await (const chunk of createReadStream(path) as AsyncIterable<Uint8Array>) {
      bytesInFile += chunk.length
      for (let at = 0; at < chunk.length && made < ticks; ) {
        const taken = chunk.subarray(at, at + block - filled)
        pending.set(taken, filled)
        filled += taken.length
        at += taken.length
        if (filled === block) {
          filled = 0
          made++
          yield pending.slice()
        }
      }
      if (made === ticks) return
    }
    if (bytesInFile === 0) throw new Error(`${path} is empty; give a file with at least one byte`)
  }
}
