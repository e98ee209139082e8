// The example's output.
import type { Plan } from 'braid-gpu'

export const mebibytes = (bytes: number) => `${(bytes / 2 ** 20).toFixed(2)} MiB`

/** A line of `label  text`, the label in its column. */
export const row = (label: string, text: string) => console.log(`  ${label.padEnd(12)} ${text}`)

export const title = (text: string) => console.log(`\n${text}`)

/** A line for one promise: ✓ or ✗, and the text. Returns whether it holds. */
export const verdict = (holds: boolean, label: string, text: string) => {
  console.log(`  ${holds ? '✓' : '✗'} ${label.padEnd(10)} ${text}`)
  return holds
}

/** A line for a promise that could not be judged: it breaks nothing. */
export const unjudged = (label: string, text: string) => {
  console.log(`  ? ${label.padEnd(10)} ${text}`)
  return true
}

/** A bar that redraws itself on a terminal, and is three lines in a log. */
export const progress = (label: string, total: number) => {
  const live = process.stdout.isTTY
  let said = 0
  return (done: number) => {
    const bar = '#'.repeat(Math.round((24 * done) / total)).padEnd(24, '.')
    const line = `  ${label.padEnd(12)} ${bar} ${done} of ${total} ticks`
    if (live) process.stdout.write(`\r${line}${done === total ? '\n' : ''}`)
    else if (done === total || done >= said + total / 2) console.log(line)
    if (done >= said + total / 2) said = done
  }
}

/**
 * How many commands of each kind the plan has, and how many uses were proved redundant: pairs of a buffer and
 * a foreign lane without a use.
 */
export const figures = (plan: Plan) => {
  const count = { run: 0, wait: 0, record: 0, use: 0, alloc: 0, free: 0 }
  const foreign = new Set<string>()
  for (const command of plan.commands) {
    count[command[0]]++
    if (command[0] !== 'run' || plan.storage === 'planned') continue
    const [, , lane, reads, writes] = command
    for (const id of [...reads, ...writes]) {
      const buffer = plan.buffers[plan.buffers[id]!.alias ?? id]!
      if (buffer.life === 'tick' && buffer.home !== lane) foreign.add(`${buffer.id} ${lane}`)
    }
  }
  return { ...count, elided: Math.max(0, foreign.size - count.use) }
}

/** The largest difference of two outputs, relative to the largest value of the second. */
export const difference = (found: Float32Array, wanted: Float32Array) => {
  let largest = 0
  let scale = 0
  for (let i = 0; i < wanted.length; i++) {
    largest = Math.max(largest, Math.abs(found[i]! - wanted[i]!))
    scale = Math.max(scale, Math.abs(wanted[i]!))
  }
  return found.length === wanted.length && Number.isFinite(largest) && scale > 0
    ? largest / scale
    : Number.POSITIVE_INFINITY
}
