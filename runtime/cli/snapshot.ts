import * as E from 'fp-ts/lib/Either.js'
import { shown } from '../../dsl/ir/show.js'
import { figuresOf } from '../device/snapshot/layout.js'
import { parseSnapshot } from '../device/snapshot/read.js'
import type { AllocatorSnapshot } from '../device/snapshot/snapshot.js'
import { snapshotSvg } from '../device/snapshot/svg.js'
import { snapshotText } from '../device/snapshot/text.js'
import { torchPickle } from '../device/snapshot/torch.js'
import { thrown } from '../values.js'
import { oneOf, oneWord, parse } from './args.js'
import { bytesOf, outputFrom, save } from './files.js'
import { Failed, Misuse, type Output } from './io.js'

export const usage = 'braid snapshot FILE [--as text|svg|torch|json] [-o FILE] [--json]'

type As = 'text' | 'svg' | 'torch' | 'json'
const flags = {
  as: { type: 'string' },
  output: { type: 'string', short: 'o' },
} as const

const badFile = (at: string, wanted: string, found: string, next: string): Failed =>
  new Failed([{ _tag: 'BadFile', at, subject: 'snapshot', wanted, found, next }])

const read = (path: string): AllocatorSnapshot => {
  const bytes = bytesOf(path, 'snapshot', 'write one with: JSON.stringify(device.snapshot())')
  // Every pickle of protocol 2 or later begins with this byte; no JSON does.
  if (bytes[0] === 0x80)
    throw badFile(
      path,
      "Braid's own snapshot, as JSON",
      'a Python pickle, which Braid does not read',
      "open PyTorch's snapshots at https://pytorch.org/memory_viz; " +
        "write Braid's with: JSON.stringify(device.snapshot())",
    )
  const parsed = parseJson(path, bytes)
  if (E.isLeft(parsed)) throw new Failed(parsed.left.map(fault => ({ ...fault, at: `${path}: ${fault.at}` })))
  return parsed.right
}

const parseJson = (path: string, bytes: Buffer): ReturnType<typeof parseSnapshot> => {
  try {
    return parseSnapshot(bytes.toString('utf8'))
  } catch (error) {
    throw badFile(path, 'a snapshot that fits into one string', thrown(error), 'keep less history')
  }
}

const written = (snapshot: AllocatorSnapshot, as: As): string | Uint8Array => {
  if (as === 'text') return snapshotText(snapshot)
  if (as === 'svg') return snapshotSvg(snapshot)
  return as === 'torch' ? torchPickle(snapshot) : `${JSON.stringify(snapshot)}\n`
}

const summary = (snapshot: AllocatorSnapshot) => {
  const of = (pinned: boolean) => {
    const segments = snapshot.segments.filter(segment => segment.pinned === pinned)
    const { states, requested, reserved, longest, unusable } = figuresOf(snapshot, segments)
    const bytes = Object.fromEntries(Object.entries(states).map(([state, { bytes }]) => [state, bytes]))
    return { segments: segments.length, reserved, requested, ...bytes, longest, unusable }
  }
  return { device: snapshot.device, memory: of(false), pinned: of(true), records: snapshot.history.length }
}

export const snapshot = async (args: readonly string[], out: Output): Promise<number> => {
  const { values, positionals } = parse(args, flags, usage)
  const path = oneWord(positionals, 'FILE', usage)
  const as = oneOf(values.as ?? 'text', '--as', ['text', 'svg', 'torch', 'json'])
  const output = outputFrom(values.output)
  if (as === 'torch' && output === undefined)
    throw new Misuse(`--as torch writes a pickle, which is no text: give -o FILE\nusage: ${usage}`)
  const given = read(path)
  const made = written(given, as)
  if (output !== undefined) {
    save(output, made, 'snapshot')
    const open = as === 'torch' ? '; open it at https://pytorch.org/memory_viz' : ''
    out.say(`${shown(output)}: the snapshot as ${as}${open}`)
    out.result({ file: path, as, output, ...summary(given) })
    return 0
  }
  out.say(String(made).trimEnd())
  // With --json exactly one object is printed: the snapshot itself, or an object that holds the picture.
  out.result(as === 'json' ? given : { file: path, as, ...summary(given), text: made })
  return 0
}
