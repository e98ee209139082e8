import * as E from 'fp-ts/lib/Either.js'
import { irOf, type Lease, type Program } from '../../dsl/index.js'
import { plural, type Repeatable, repeatable } from '../../dsl/internal.js'
import { joinNames, laneName, planName } from '../../dsl/ir/names.js'
import type { Plan } from '../../dsl/ir/plan.js'
import { shown } from '../../dsl/ir/show.js'
import type { HostOptions } from '../addon.js'
import { Block, bytesOf } from '../device/block.js'
import { errorsOf, RunError } from '../errors.js'
import type { Leased } from '../session/lease.js'
import { open } from '../session/open.js'
import { specOf } from '../session/ports.js'
import { captureFeeds, type Session } from '../session/session.js'
import type { SessionStats } from '../session/stats.js'
import { traceChunks } from '../trace/trace.js'
import { arrayOver, thrown } from '../values.js'
import { devices, oneWord, parse, whole } from './args.js'
import { type CheckResult, check, type Values } from './check.js'
import { figuresOf } from './figures.js'
import { refuseUnwritable, save } from './files.js'
import { type EndingSignal, exitStatus, Interrupted, interruptible } from './interrupt.js'
import { Failed, Misuse, note, type Output, report as reportError } from './io.js'
import { type CompileFlags, compiled, compileFlags, compilerOf } from './planned.js'
import { loadProgram } from './program.js'
import type { Progress } from './progress.js'
import { Reloading } from './reload.js'
import { bytes, table } from './table.js'
import { type Watching, watch } from './watch.js'

export const usage =
  'braid run PROGRAM [--device auto|host|cuda:N[,cuda:N…]] [--ticks N] ' +
  '[--memory BYTES|fast|small] [--storage pooled|planned] [--mode eager|graph|auto] [--fuse|--no-fuse] ' +
  '[--profile TRACE] [--check] [--trace FILE] [--watch] [--json]'

const flags = {
  ...compileFlags,
  device: { type: 'string' },
  ticks: { type: 'string' },
  check: { type: 'boolean' },
  trace: { type: 'string' },
  watch: { type: 'boolean' },
} as const

export const run = async (args: readonly string[], out: Output): Promise<number> => {
  const { values, positionals } = parse(args, flags, usage)
  const path = oneWord(positionals, 'PROGRAM', usage)
  const ticks = values.ticks === undefined ? undefined : whole(values.ticks, '--ticks', 1)
  const wanted = values.device === undefined ? undefined : devices(values.device)
  if (values.trace !== undefined) refuseUnwritable(values.trace, '--trace')
  const compiler = compilerOf(values)
  const choice = { device: wanted, ticks, check: values.check === true, trace: values.trace }
  if (values.watch === true) return watched(path, compiler, choice, out)
  const loaded = await loadProgram(path)
  const drawn = choice.check ? repeatable(irOf(loaded.graph), loaded.params) : undefined
  const program = drawn === undefined ? loaded : drawnOnce(loaded, drawn)
  const { progress } = out
  progress.phase('compiling')
  let plan: Plan
  let done: Done
  try {
    plan = compiled(program, compiler, choice.device)
    done = await execute(path, program, plan, choice, progress)
  } finally {
    progress.end()
  }
  report(plan, done, done.unsaved === undefined ? values.trace : undefined, out)
  const checked = done.check?.faults.map(fault => ({ ...fault, at: path })) ?? []
  const faults = [...(done.unsaved?.faults ?? []), ...(drawn?.faults() ?? []), ...checked]
  if (faults.length > 0) throw new Failed(faults)
  return done.interrupted === undefined ? 0 : exitStatus[done.interrupted]
}

/** The program with the values that all runs of a check begin with. */
const drawnOnce = (program: Program, { graph: ir, params }: Repeatable): Program => ({
  ...program,
  graph: { ir },
  ...(program.params === undefined ? {} : { params }),
})

interface Choice {
  readonly device: string | readonly string[] | undefined
  readonly ticks: number | undefined
  readonly check: boolean
  readonly trace: string | undefined
}

/** Runs until a signal ends it: each change of the program's files goes over to the plan that they make. */
const watched = async (
  path: string,
  compiler: CompileFlags,
  choice: Choice,
  out: Output,
): Promise<number> => {
  if (choice.check || choice.trace !== undefined)
    throw new Misuse(
      `--watch goes over from one plan to another; --check and --trace are of one\nusage: ${usage}`,
    )
  const files = await Reloading.of(path)
  try {
    const program = await files.load()
    const plan = compiled(program, compiler, choice.device)
    out.progress.phase('opening')
    await using session = await opened(program, plan, choice, out.progress)
    out.progress.end()
    let count = 0
    const watching: Watching = {
      session,
      load: async () => {
        const next = await files.load()
        return { program: next, plan: compiled(next, compiler, choice.device) }
      },
      changed: signal => files.changed(signal),
      run: async (current, signal) =>
        session
          .run(feedsOf(path, current) as never, { signal, ...ticksOf(session.plan, choice) })
          .forEach(lease => {
            count++
            lease[Symbol.dispose]()
          }),
      note: text => note(`braid: ${shown(path)}: ${shown(text)}`),
      problem: error =>
        void reportError(error instanceof RunError ? runFailed(path, error) : error, out.json),
    }
    const { interrupted } = await toItsEnd(path, signal => watch(watching, program, signal))
    const done = { ...ranOn(session), ticks: count, interrupted, stats: session.stats(), check: undefined }
    report(session.plan, done, undefined, out)
    return interrupted === undefined ? 0 : exitStatus[interrupted]
  } finally {
    out.progress.end()
    files.close()
  }
}

const report = (plan: Plan, done: Done, trace: string | undefined, out: Output): void => {
  const { stats } = done
  out.result({
    program: plan.name,
    device: done.device,
    mode: plan.graphs === undefined ? 'eager' : 'graph',
    ticks: done.ticks,
    ...(done.interrupted === undefined ? {} : { interrupted: done.interrupted }),
    tickMs: { median: stats.tickMs.median, p90: stats.tickMs.p90 },
    enqueueUs: { median: stats.enqueueUs.median },
    peak: stats.peak,
    ...(plan.devices > 1 ? { devices: stats.devices } : {}),
    bound: plan.bound,
    commands: figuresOf(plan),
    ...(done.check ? { check: checkFigures(done.check) } : {}),
    drops: stats.drops,
  })
  out.say(describe(plan, done, trace, out))
}

const checkFigures = ({ outputs, states, maxRelativeError, tolerance, undecided, ok }: CheckResult) => ({
  outputs,
  maxRelativeError,
  states,
  tolerance,
  undecided,
  ok,
})

interface Done {
  readonly device: string
  readonly deviceName: string
  readonly ticks: number
  /** The signal that ended the run. */
  readonly interrupted: EndingSignal | undefined
  readonly stats: SessionStats
  readonly check: CheckResult | undefined
  /** Why the trace's file could not be written. */
  readonly unsaved?: Failed | undefined
}

const opened = async (program: Program, plan: Plan, choice: Choice, progress: Progress): Promise<Session> => {
  const options = program.options ?? {}
  const session = await open(plan, {
    device: choice.device ?? options.device ?? 'auto',
    trace: choice.trace !== undefined || options.trace === true,
    poison: options.poison === true,
    onProgress: ({ prepared, operations }) =>
      progress.step(`preparing kernels: ${prepared} of ${operations}`),
    ...(program.params ? { params: program.params } : {}),
    ...(options.host ? { host: options.host as HostOptions } : {}),
  })()
  if (E.isLeft(session)) throw new Failed(errorsOf(session.left))
  return session.right as unknown as Session
}

const ranOn = (session: Session) => ({
  device: session.devices.map(({ device }) => device).join(','),
  deviceName: [...new Set(session.devices.map(({ name }) => name))].join(', '),
})

/** A graph without inputs has no feeds whose end would be the run's. */
const ticksOf = (plan: Plan, { ticks }: Choice): { readonly ticks?: number } => {
  if (ticks !== undefined) return { ticks }
  return plan.buffers.some(({ life }) => life === 'input') ? {} : { ticks: 10 }
}

const execute = async (
  path: string,
  program: Program,
  plan: Plan,
  wanted: Choice,
  progress: Progress,
): Promise<Done> => {
  progress.phase('opening')
  await using session = await opened(program, plan, wanted, progress)
  const fed = new Map<string, Values[string][]>()
  const got: (Values | Promise<Values>)[] = []
  if (wanted.check)
    captureFeeds(session, (input, _, value) => {
      if (!fed.has(input)) fed.set(input, [])
      fed.get(input)!.push(value.slice())
    })
  const feeds = feedsOf(path, program)
  let count = 0
  const { ticks } = ticksOf(plan, wanted)
  progress.phase('running')
  const { interrupted } = await toItsEnd(path, signal =>
    session.run(feeds as never, { signal, ...ticksOf(plan, wanted) }).forEach(lease => {
      count++
      progress.step(`running: tick ${count}${ticks === undefined ? '' : ` of ${ticks}`}`)
      if (wanted.check) got.push(copied(lease as Lease<Record<string, Leased>>, plan))
      else lease[Symbol.dispose]()
    }),
  )
  const stats = session.stats()
  const unsaved = wanted.trace === undefined ? undefined : saveTrace(wanted.trace, session, plan)
  return {
    ...ranOn(session),
    ticks: count,
    interrupted,
    stats,
    check:
      wanted.check && (count > 0 || interrupted === undefined)
        ? await check(program, plan, fed, await Promise.all(got), {
            ...ticksOf(plan, wanted),
            ...(interrupted === undefined ? { states: await statesOf(session) } : { interrupted: true }),
            progress,
          })
        : undefined,
    unsaved,
  }
}

const statesOf = async ({ state }: Session): Promise<Values> => {
  const read = new Map<string, Values[string]>()
  for (const name of state.names) read.set(name, await state.read(name))
  return Object.fromEntries(read)
}

/** Returns the error instead of throwing it: what the run measured is reported all the same. */
const saveTrace = (path: string, session: Session, plan: Plan): Failed | undefined => {
  try {
    save(path, traceChunks(session.trace(), plan), 'trace', '--trace')
    return undefined
  } catch (error) {
    if (error instanceof Failed) return error
    throw error
  }
}

/** Copies of a lease's values; gives the lease back as soon as they are made. */
const copied = (lease: Lease<Record<string, Leased>>, plan: Plan): Values | Promise<Values> => {
  const blocks = Object.entries(lease).flatMap(([name, value]) =>
    Block.is(value) ? [[name, value] as const] : [],
  )
  const arrays = Object.entries(lease).flatMap(([name, value]) =>
    Block.is(value) ? [] : [[name, value.slice()]],
  )
  if (blocks.length === 0) {
    lease[Symbol.dispose]()
    return Object.fromEntries(arrays) as Values
  }
  const specOfOutput = (name: string) =>
    specOf(
      plan.buffers.find(
        ({ life, alias, name: own }) => life === 'output' && alias === undefined && own === name,
      )!,
    )
  const reading = blocks.map(async ([name, block]) => [
    name,
    arrayOver(await bytesOf(block), 0, specOfOutput(name)),
  ])
  return Promise.all(reading)
    .then(read => Object.fromEntries([...arrays, ...read]) as Values)
    .finally(() => lease[Symbol.dispose]())
}

/** Runs until the feeds end, or until a signal has ended the run. */
const toItsEnd = async (
  path: string,
  run: (signal: AbortSignal) => Promise<void>,
): Promise<{ readonly interrupted: EndingSignal | undefined }> => {
  try {
    await interruptible(run)
    return { interrupted: undefined }
  } catch (error) {
    if (error instanceof Interrupted) return { interrupted: error.by }
    throw error instanceof RunError ? runFailed(path, error) : error
  }
}

// Where the error has no place in the user's code, its place is the program's file.
const runFailed = (path: string, error: RunError): Failed => {
  const { _tag, at, subject, wanted, found, next, cause } = error
  const place = at === 'unknown' ? path : at
  return new Failed([
    { _tag, at: place, subject, wanted, found, next, ...(cause === undefined ? {} : { cause }) },
  ])
}

const badProgram = (at: string, subject: string, wanted: string, found: string, next: string): Failed =>
  new Failed([{ _tag: 'BadProgram', at, subject, wanted, found, next }])

const feedsOf = (path: string, program: Program): unknown => {
  if (typeof program.feeds !== 'function') return program.feeds
  try {
    return program.feeds()
  } catch (error) {
    throw badProgram(
      path,
      'feeds',
      'a function that makes the feeds',
      `one that threw: ${thrown(error)}`,
      'correct the function',
    )
  }
}

const describe = (plan: Plan, done: Done, trace: string | undefined, { styles }: Output): string => {
  const { run, wait, use, elided, graphs, edges } = figuresOf(plan)
  const { stats } = done
  const drops = Object.entries(stats.drops).filter(([, count]) => count > 0)
  const within = stats.devices.every(({ peak, bound }) => peak.reserved <= bound)
    ? styles.good('within it')
    : styles.bad('over it')
  const rows: (readonly string[])[] = [
    [
      'plan',
      `${planName(plan)}: ${plan.lanes.length} ${plan.lanes.length === 1 ? 'lane' : 'lanes'} ` +
        `(${plan.lanes.map(({ id }) => laneName(plan, id)).join(', ')}), ` +
        (graphs === undefined
          ? `a tick is ${run} runs, ${wait} waits, ${use} uses, ${elided} elided`
          : `a tick is ${run} runs in ${graphs} ${graphs === 1 ? 'graph' : 'graphs'} with ${edges} edges`),
    ],
    ['device', `${done.device}: ${done.deviceName}`],
    [
      'ticks',
      `${done.ticks}, ${plan.inFlight} in flight` +
        (done.interrupted === undefined ? '' : `; ended by ${done.interrupted}`),
    ],
    ['tick', `${ms(stats.tickMs.median)} median, ${ms(stats.tickMs.p90)} p90`],
    [
      'enqueue',
      `${stats.enqueueUs.median.toFixed(1)} µs median on the JavaScript thread, ` +
        `${stats.issueUs.median.toFixed(1)} µs on the issuing thread`,
    ],
    ['bound', `${plan.bound.device.map(bytes).join(' and ')} of device memory promised`],
    [
      'peak',
      `${stats.devices.map(({ peak }) => bytes(peak.reserved)).join(' and ')} held, ${within}; ` +
        `${bytes(stats.peak.allocated)} in use; ` +
        `${bytes(stats.peak.pinned)} pinned of ${bytes(plan.bound.pinned)}`,
    ],
  ]
  if (drops.length > 0) rows.push(['drops', drops.map(([name, count]) => `${name} ${count}`).join(', ')])
  if (done.check) rows.push(['check', describeCheck(done.check, styles)])
  if (trace !== undefined)
    rows.push(['trace', `${trace}: open https://ui.perfetto.dev and drop it on the page`])
  return table(rows.map(([label, text]) => [styles.bold(label!), text!]))
}

const describeCheck = (
  { outputs, states, maxRelativeError, tolerance, undecided, ok }: CheckResult,
  styles: Output['styles'],
): string =>
  `${outputs} outputs${states === 0 ? '' : ` and ${plural(states, 'state')}`} against interpret: ` +
  `relative error ${maxRelativeError.toExponential(2)}, allowed ${tolerance.toExponential(2)}: ` +
  (ok ? styles.good('good') : styles.bad('wrong')) +
  (undecided.length === 0
    ? ''
    : `; says nothing of ${joinNames(undecided, 4)}, where rounding alone may be as large as the values`)

const ms = (value: number): string => `${value.toFixed(value < 10 ? 3 : 1)} ms`
