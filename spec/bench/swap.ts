// The gap of `session.swap`: how much longer it is from one tick to the next where another plan of the same
// states and parameters takes over, and what ticks take while that plan is opened. Beside what there is
// without it: the states are saved, the session is closed, and another one is opened with them.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { lastValueFrom, map } from 'rxjs'
import { compile, type Graph, orThrow, type Plan } from '../../dsl/index.js'
import {
  Device,
  devices,
  type OpenOptions,
  open,
  params,
  type Session,
  safetensors,
} from '../../runtime/index.js'
import { type Body, decode, valuesOf } from './model-bodies.js'
import { middle } from './pipeline-runs.js'

/** Ticks before a swap and after it, and how often. */
const before = 300
const repeats = 6

const sizes = { cached: 1024, length: 1023, vocabulary: 256, width: 768, heads: 12, layers: 12 }
const small = { cached: 64, length: 63, vocabulary: 256, width: 64, heads: 4, layers: 2 }

/** The same body in two plans: three ticks in flight, and two. */
const plansOf = ({ graph }: Body): readonly Plan[] =>
  [3, 2].map(inFlight => orThrow(compile(graph as Graph, { inFlight, fuse: true, mode: 'auto' })) as Plan)

/** Runs so many ticks; when each one's outputs were there. */
const timesOf = async (session: Session, ticks: number): Promise<readonly number[]> => {
  const times: number[] = []
  await lastValueFrom(
    session.run({} as never, { ticks }).pipe(
      map(lease => {
        times.push(performance.now())
        ;(lease as unknown as Disposable)[Symbol.dispose]()
      }),
    ),
  )
  return times
}

const intervals = (times: readonly number[]): readonly number[] =>
  times.slice(1).map((time, i) => time - times[i]!)

interface Measured {
  readonly tick: number
  readonly gap: number
  /** While the next plan is opened: the median tick, and the longest. */
  readonly meanwhile: number
  readonly longest: number
  readonly opening: number
}

const swapped = async (session: Session, plan: Plan, from: number): Promise<Measured> => {
  let asked = 0
  let swapping: Promise<number> | undefined
  let [done, at] = [0, 0]
  const times: number[] = []
  let left = before
  // The run goes on until as many ticks of the other plan have come.
  await new Promise<void>((resolve, reject) => {
    const running = session.run({} as never).subscribe({
      next: lease => {
        times.push(performance.now())
        ;(lease as unknown as Disposable)[Symbol.dispose]()
        if (times.length === before) {
          asked = performance.now()
          swapping = session.swap(plan as never)
          swapping.then(tick => {
            ;[done, at] = [performance.now(), tick - from]
          }, reject)
        }
        if (done > 0 && --left === 0) {
          running.unsubscribe()
          resolve()
        }
      },
      error: reject,
    })
  })
  const all = intervals(times)
  const during = all.slice(before, at - 1)
  return {
    tick: middle(all.slice(before / 2, before - 1)),
    gap: all[at - 1]!,
    meanwhile: middle(during),
    longest: Math.max(...during),
    opening: done - asked,
  }
}

/** From the last tick of a session to the first of the next one, which begins with the states of the first. */
const reopened = async (session: Session, plan: Plan, options: OpenOptions): Promise<number> => {
  const folder = mkdtempSync(join(tmpdir(), 'braid-swap-'))
  try {
    const path = join(folder, 'states.safetensors')
    const last = (await timesOf(session, before)).at(-1)!
    await session.state.save(path)
    await session.close()
    await using next = orThrow(
      await open(plan, { ...options, state: safetensors(path) } as never)(),
    ) as unknown as Session
    return (await timesOf(next, before))[0]! - last
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

export const bench = {
  name: 'swap',
  title: 'session.swap between ticks of a decoder with caches: milliseconds',
  run: async (log: (line: string) => void) => {
    const name = devices().some(({ device }) => device === 'cuda:0') ? 'cuda:0' : 'host'
    const body = decode(name === 'host' ? small : sizes)
    const plans = plansOf(body)
    await using device = orThrow(await Device.open(name)())
    const weights = Object.fromEntries(
      Object.entries(body.weights).map(([key, weight]) => [key, valuesOf(weight)] as const),
    )
    await using shared = await params(device, weights as never)
    const options = { device, params: shared } as unknown as OpenOptions
    const openOne = async (plan: Plan): Promise<Session> =>
      orThrow(await open(plan, options as never)()) as unknown as Session
    const found: Measured[] = []
    {
      await using session = await openOne(plans[0]!)
      await timesOf(session, before)
      for (let i = 0; i < repeats; i++) {
        const { ticks } = session.stats()
        found.push(await swapped(session, plans[(i + 1) % 2]!, ticks))
        log(JSON.stringify(found.at(-1)))
      }
    }
    const anew: number[] = []
    for (let i = 0; i < 3; i++) anew.push(await reopened(await openOne(plans[0]!), plans[1]!, options))
    const spread = (of: keyof Measured): string => {
      const values = found.map(each => each[of])
      return `${Math.min(...values).toPrecision(3)} to ${Math.max(...values).toPrecision(3)}`
    }
    const figure = (of: keyof Measured): number => middle(found.map(each => each[of]))
    const rows = [
      { what: 'a tick before', ms: figure('tick'), spread: spread('tick') },
      { what: 'a tick while the other plan is opened', ms: figure('meanwhile'), spread: spread('meanwhile') },
      { what: 'the longest of these', ms: figure('longest'), spread: spread('longest') },
      { what: 'from the last tick to the first of the other plan', ms: figure('gap'), spread: spread('gap') },
      { what: 'from the call to the swap', ms: figure('opening'), spread: spread('opening') },
      {
        what: 'saved, closed and opened anew instead',
        ms: middle(anew),
        spread: `${Math.min(...anew).toPrecision(3)} to ${Math.max(...anew).toPrecision(3)}`,
      },
    ]
    log(`on ${name}`)
    // On the host a tick is shorter than a turn of JavaScript's loop, so its gap says nothing.
    return { rows, ok: name === 'host' || figure('gap') <= 2 * figure('tick') }
  },
}
