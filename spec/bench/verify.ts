// What `verify` takes of plans that no pass had a part in, all nine laws, and how it grows: Cholesky and
// layered random task graphs on 8 lanes.
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { verify } from '../../dsl/index.js'
import { choleskyOf, largePlan, layeredOf } from '../fixtures/plans/of-tasks.js'

const lanes = 8
const limitMs = 2_000
const times = 5
const families = { cholesky: choleskyOf, layered: layeredOf } as const
type Family = keyof typeof families

interface Figures {
  readonly nodes: number
  readonly commands: number
  /** The first proof of the process, with nothing compiled and no memory at hand; all of them. */
  readonly firstMs: number
  readonly ms: readonly number[]
  /** Resident memory with the plan, before and at the most. */
  readonly planMiB: number
  readonly mostMiB: number
}

// The processor's time, so that other work on the machine counts for little.
const processorMs = (): number => {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1000
}
const residentMiB = (): number => process.memoryUsage().rss / 2 ** 20

const measure = async (name: Family, tasks: number): Promise<Figures> => {
  const plan = largePlan(name, families[name](tasks), lanes)
  // What making the plan held weakly is let go of between two turns of the event loop.
  await new Promise(setImmediate)
  const planMiB = residentMiB()
  let mostMiB = planMiB
  const ms: number[] = []
  for (let run = 0; run < times; run++) {
    const began = processorMs()
    const violations = verify(plan)
    ms.push(processorMs() - began)
    mostMiB = Math.max(mostMiB, residentMiB())
    if (violations.length > 0) throw new Error(violations[0]!.message)
  }
  return { nodes: plan.nodes.length, commands: plan.commands.length, firstMs: ms[0]!, ms, planMiB, mostMiB }
}

const here = fileURLToPath(import.meta.url)
const nodeOptions = ['--single-threaded', '--max-old-space-size=4096']

/** Each in a process of its own, with one thread for all that Node does. */
const measured = (name: Family, tasks: number): Figures => {
  const script = [...process.execArgv, ...nodeOptions, here, name, String(tasks)]
  const { status, stdout, stderr } = spawnSync(process.execPath, script, {
    encoding: 'utf8',
    maxBuffer: 2 ** 26,
  })
  if (status !== 0) throw new Error(`${name}, ${tasks} nodes: ${stderr.slice(-2000)}`)
  return JSON.parse(stdout) as Figures
}

if (process.argv[1] === here)
  process.stdout.write(JSON.stringify(await measure(process.argv[2] as Family, Number(process.argv[3]))))

export const bench = {
  name: 'verify',
  title:
    `verify, all laws, of plans on 8 lanes, on one core (node ${nodeOptions.join(' ')}): ` +
    'milliseconds of the processor, and microseconds a node as plans grow',
  run: async (
    log: (line: string) => void,
  ): Promise<{ rows: Record<string, number | string>[]; ok: boolean }> => {
    const rows: Record<string, number | string>[] = []
    let ok = true
    for (const name of Object.keys(families) as Family[])
      for (const tasks of [10_000, 100_000, 1_000_000]) {
        const { nodes, commands, firstMs, ms, planMiB, mostMiB } = measured(name, tasks)
        const sorted = [...ms].sort((a, b) => a - b)
        const [least, median, worst] = [sorted[0]!, sorted[sorted.length >> 1]!, sorted[sorted.length - 1]!]
        const perNode = (1000 * median) / nodes
        rows.push({
          family: name,
          nodes,
          commands,
          firstMs,
          ms: median,
          least,
          most: worst,
          perNode,
          planMiB,
          mostMiB,
        })
        ok &&= median <= limitMs
        log(
          `  ${name.padEnd(8)} ${String(nodes).padStart(7)} nodes, ${commands} commands: ` +
            `${median.toFixed(0).padStart(5)} ms (${least.toFixed(0)} to ${worst.toFixed(0)}, ` +
            `the first ${firstMs.toFixed(0)}), ${perNode.toFixed(2)} µs a node, ` +
            `${(mostMiB - planMiB).toFixed(0)} MiB in addition to the plan's ${planMiB.toFixed(0)}`,
        )
      }
    log(`  1,000,000 nodes within ${limitMs} ms: ${ok ? 'yes' : 'no'}`)
    return { rows, ok }
  },
}
