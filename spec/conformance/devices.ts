// The devices of the contract suites: `host` always, and `cuda:0` where there is one. A new device is one
// line here.

import { compile } from '../../dsl/compiler/compile.js'
import type { CompileOptions } from '../../dsl/index.js'
import { type Graph, orThrow, type Ports } from '../../dsl/index.js'
import { devices, type OpenOptions, open, type Session } from '../../runtime/index.js'

const names: readonly string[] = devices().map(({ device }) => device)
const cudas = names.filter(name => name.startsWith('cuda:'))

export const present: readonly string[] = names.filter(device => device === 'host' || device === 'cuda:0')

/**
 * Lists of devices for plans that need several: host devices; where there are enough GPUs, two or four of
 * them; where there is a GPU, the same one twice.
 */
export const fleets: readonly (readonly string[])[] = [
  ['host:0', 'host:1'],
  ['host:0', 'host:1', 'host:2'],
  ...[cudas.slice(0, 2), cudas.slice(0, 4), cudas.slice(0, 1).flatMap(one => [one, one])].filter(
    (fleet, i, all) => fleet.length > 1 && all.findIndex(other => other.join() === fleet.join()) === i,
  ),
]

/** Compiles and opens, or throws with every fault. */
export const opened = async <I extends Ports, O extends Ports>(
  graph: Graph<I, O>,
  device: string | readonly string[],
  { compile: compiling, ...options }: OpenOptions & { readonly compile?: CompileOptions } = {},
): Promise<Session<I, O>> => orThrow(await open(orThrow(compile(graph, compiling)), { device, ...options })())

export const turn = (): Promise<void> => new Promise(resolve => setImmediate(resolve))
export const pause = (ms: number): Promise<void> => new Promise(resolve => setTimeout(resolve, ms))

/** Waits until it holds, or fails after half a minute. */
export const until = async (holds: () => boolean): Promise<void> => {
  for (let i = 0; i < 6000; i++) {
    if (holds()) return
    await pause(5)
  }
  throw new Error(`not within 30 s: ${holds}`)
}
