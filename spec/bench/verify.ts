// How long `verify` takes of plans that no pass had a part in, all nine laws, and how it grows: Cholesky and layered random task graphs on 8 lanes.
import { verify } from '../../dsl/index.js'
import { choleskyOf, largePlan, layeredOf } from '../support/large-plans.js'

const lanes = 8
const limitMs = 2_000
const families = { cholesky: choleskyOf, layered: layeredOf } as const

/** The least of some runs: what is above it is other work of the machine and the collection of other garbage. */
const measure = async (name: keyof typeof families, tasks: number, times: number) => {
  const plan = largePlan(name, families[name](tasks), lanes)
  // What making the plan held weakly is let go of between two turns of the event loop.
  await new Promise(setImmediate)
  const ms: number[] = []
  for (let run = 0; run < times; run++) {
    const began = performance.now()
    const violations = verify(plan)
    ms.push(performance.now() - began)
    if (violations.length > 0) throw new Error(violations[0]!.message)
  }
  return { nodes: plan.nodes.length, commands: plan.commands.length, ms: Math.min(...ms), most: Math.max(...ms) }
}

export const bench = {
  name: 'verify',
  title: 'verify, all laws, of plans on 8 lanes: milliseconds, and microseconds a node as plans grow',
  run: async (log: (line: string) => void): Promise<{ rows: Record<string, number | string>[]; ok: boolean }> => {
    const rows: Record<string, number | string>[] = []
    let ok = true
    await measure('layered', 2_000, 5)
    for (const name of Object.keys(families) as (keyof typeof families)[])
      for (const tasks of [10_000, 100_000, 1_000_000]) {
        const { nodes, commands, ms, most } = await measure(name, tasks, 3)
        const perNode = (1000 * ms) / nodes
        const residentMiB = process.memoryUsage().rss / 2 ** 20
        rows.push({ family: name, nodes, commands, ms, most, perNode, residentMiB })
        ok &&= ms <= limitMs
        log(
          `  ${name.padEnd(8)} ${String(nodes).padStart(7)} nodes, ${commands} commands: ${ms.toFixed(0).padStart(5)} ms, ${perNode.toFixed(2)} µs a node, ${residentMiB.toFixed(0)} MiB resident with the plan`,
        )
      }
    log(`  1,000,000 nodes within ${limitMs} ms: ${ok ? 'yes' : 'no'}`)
    return { rows, ok }
  },
}
