// What a step of a plan tree takes JavaScript where nothing has to be recorded again, beside the cheapest
// launch that there is: that of a graph of one node. A step that leaves one value in the arena, and one that
// leaves eight.
import {
  compile,
  download,
  graph,
  lane,
  mul,
  orThrow,
  type Plan,
  tensor,
  tree,
  upload,
} from '../../dsl/index.js'
import {
  Device,
  devices,
  ExecutableGraph,
  GraphDefinition,
  type PlanTree,
  planTree,
} from '../../runtime/index.js'
import { middle } from './pipeline-runs.js'

/** Launches in a row on an idle device, and how often. */
const launches = 10
const repeats = 200
const bar = 8

const row = tensor('f32', [64])
const copy = lane('copy')

/** A plan whose outputs are its own next inputs, each times a number. */
const stepOf = (values: number): Plan => {
  const names = Array.from({ length: values }, (_, i) => `v${i}`)
  const body = graph('step', Object.fromEntries(names.map(name => [name, row])), flows =>
    Object.fromEntries(names.map(name => [name, flows[name]!.pipe(upload(copy), mul(2), download(copy))])),
  )
  return orThrow(compile(body, { mode: 'eager', storage: 'planned' })) as Plan
}

/** Microseconds of one launch, by repeat. The first repeats run before the code is compiled. */
const timed = async (launch: () => unknown, drained: () => Promise<unknown>): Promise<readonly number[]> => {
  const each: number[] = []
  for (let repeat = -repeats; repeat < repeats; repeat++) {
    const began = performance.now()
    for (let i = 0; i < launches; i++) launch()
    const ended = performance.now()
    await drained()
    if (repeat >= 0) each.push(((ended - began) / launches) * 1000)
  }
  return each
}

const steps = async (device: Device, values: number): Promise<readonly number[]> => {
  const plans = { step: stepOf(values) }
  const spec = tree({ plans, start: ['step'], then: { step: ['step'] } })
  const t = orThrow(await planTree(spec, { device, inFlight: launches })()) as unknown as PlanTree
  const first = Object.fromEntries(Array.from({ length: values }, (_, i) => [`v${i}`, new Float32Array(64)]))
  await t.prepare()
  t.launch('step' as never, first as never)
  await t.drained()
  const { made } = t.stats().executables
  const launch = t.launch.bind(t) as unknown as (plan: string) => unknown
  const each = await timed(
    () => launch('step'),
    () => t.drained(),
  )
  if (t.stats().executables.made !== made) throw new Error('an executable was made meanwhile')
  await t.close()
  return each
}

const bare = async (device: Device): Promise<readonly number[]> => {
  using lane = device.lane({ name: 'bare' })
  using block = device.malloc(4, lane)
  using definition = GraphDefinition.create(device)
  definition.fill(block, 1)
  using executable = ExecutableGraph.instantiate(definition)
  return await timed(
    () => executable.launch(lane),
    () => lane.synchronize(),
  )
}

const spread = (each: readonly number[]): string =>
  `${Math.min(...each).toFixed(1)} to ${Math.max(...each).toFixed(1)}`

/** A row for each tree. */
export const treeSteps = async (device: Device) => {
  const results = []
  for (const values of [1, 8]) {
    const own = await steps(device, values)
    const least = await bare(device)
    const us = middle(own)
    const row = {
      pipeline: `step of a tree that leaves ${values} ${values === 1 ? 'value' : 'values'}`,
      'µs a launch': us,
      spread: spread(own),
      'graph of one node, µs': middle(least),
      'its spread': spread(least),
      ratio: us / middle(least),
      bar: `≤ ${bar} µs: ${us <= bar ? 'held' : 'missed'}`,
    }
    results.push({ row, held: us <= bar })
  }
  return results
}

export const bench = {
  name: 'trees',
  title: 'Steps of a plan tree with nothing to record again: what one takes the JavaScript thread',
  run: async (log: (line: string) => void) => {
    const name = devices().find(({ device }) => device === 'cuda:0') === undefined ? 'host' : 'cuda:0'
    log(`on ${name}`)
    await using device = orThrow(await Device.open(name)())
    const results = await treeSteps(device)
    return { rows: results.map(({ row }) => row), ok: results.every(({ held }) => held) }
  },
}
