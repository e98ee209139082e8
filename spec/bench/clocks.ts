// What a GPU's clock and power are while something runs on it, as nvidia-smi says: large products take more
// power than the board may draw, and the clock gives way.
import { spawn } from 'node:child_process'

export interface Clocks {
  readonly megahertz: number
  readonly watts: number
}

const query = '--query-gpu=clocks.sm,power.draw'

const median = (values: readonly number[]): number => [...values].sort((a, b) => a - b)[values.length >> 1]!

/**
 * The medians over the run of `work`, which is to take a second or more; undefined where nvidia-smi is not
 * there, or says nothing in time.
 */
export const clocksOf = async (gpu: number, work: () => Promise<unknown>): Promise<Clocks | undefined> => {
  const args = [query, '--format=csv,noheader,nounits', '-lms', '50', '-i', String(gpu)]
  const monitor = spawn('nvidia-smi', args, { stdio: ['ignore', 'pipe', 'ignore'] })
  const ended = new Promise<void>(resolve => {
    monitor.once('close', () => resolve())
    monitor.once('error', () => resolve())
  })
  let said = ''
  monitor.stdout.setEncoding('utf8').on('data', (text: string) => {
    said += text
  })
  try {
    await work()
  } finally {
    monitor.kill()
  }
  await ended
  const samples = said
    .split('\n')
    .map(line => line.split(',').map(Number))
    .filter(([clock, power]) => Number.isFinite(clock) && Number.isFinite(power) && power! > 0)
  // The first ones may be of before the work began.
  const kept = samples.slice(samples.length >> 2)
  if (kept.length === 0) return undefined
  return { megahertz: median(kept.map(([clock]) => clock!)), watts: median(kept.map(([, power]) => power!)) }
}
