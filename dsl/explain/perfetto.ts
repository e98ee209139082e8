import type { Plan } from '../ir/plan.js'

// Only ratios matter: a copy at 50 GB/s, device memory at 3 TB/s, arithmetic at 100 TFLOP/s, and 2 µs for each start.
const microseconds = (plan: Plan, node: number): number => {
  const { op, flops = 0, movedBytes = 0 } = plan.nodes[node]!
  return 2 + (op === 'upload' || op === 'download' ? movedBytes / 2 / 5e4 : movedBytes / 3e6) + flops / 1e8
}

/** One tick as a timeline in Chrome's trace format: each operation as early as its lane and its waits let it, with guessed durations. */
export const perfettoOf = (plan: Plan): string => {
  const clock = plan.lanes.map(() => 0)
  const mark = new Map<number, number>()
  const events: object[] = plan.lanes.map(({ id, name }) => ({
    ph: 'M',
    pid: 0,
    tid: id,
    name: 'thread_name',
    args: { name },
  }))
  for (const command of plan.commands) {
    if (command[0] === 'wait' && command[3] !== -1)
      clock[command[2]] = Math.max(clock[command[2]]!, mark.get(command[1]) ?? 0)
    else if (command[0] === 'record') mark.set(command[1], clock[command[2]]!)
    else if (command[0] === 'run') {
      const [, node, lane] = command
      const dur = microseconds(plan, node)
      events.push({
        ph: 'X',
        pid: 0,
        tid: lane,
        ts: clock[lane],
        dur,
        name: plan.nodes[node]!.name,
        args: { at: plan.nodes[node]!.at },
      })
      clock[lane]! += dur
    }
  }
  return `${JSON.stringify({ traceEvents: events, displayTimeUnit: 'ns' })}\n`
}
