import * as E from 'fp-ts/lib/Either.js'
import { parseAllocConf } from '../device/settings/conf.js'
import {
  type AllocatorOptions,
  allocatorOptions,
  type ResolvedAllocatorOptions,
} from '../device/settings/options.js'
import { fallbacks } from '../device/stats.js'
import type { AllocatorTrace } from '../device/trace.js'
import { readTrace } from '../device/trace-file.js'
import { ReplayError, type ReplayResult, replayTrace } from '../device/trace-replay.js'
import { device, oneOf, oneWord, parse, size } from './args.js'
import { Failed, type Output } from './io.js'
import { bytes, table } from './table.js'

export const usage =
  'braid replay TRACE.json.gz [--device auto|host|cuda:N] [--policy NAME] [--expandable true|false] ' +
  '[--move true|false] [--limit BYTES] [--memory BYTES] [--conf "KEY:VALUE,…"] [--json]'

const policies = ['order-then-wait', 'order-then-grow', 'poll', 'never-wait'] as const
const truths = ['true', 'false'] as const

const flags = {
  device: { type: 'string' },
  policy: { type: 'string' },
  expandable: { type: 'string' },
  move: { type: 'string' },
  limit: { type: 'string' },
  memory: { type: 'string' },
  conf: { type: 'string' },
} as const

type Values = { readonly [K in keyof typeof flags]?: string }

/** The flags, over the settings of `--conf`, over the defaults. */
const optionsOf = (values: Values): ResolvedAllocatorOptions => {
  const given: AllocatorOptions = {
    ...(values.policy === undefined ? {} : { policy: oneOf(values.policy, '--policy', policies) }),
    ...(values.expandable === undefined
      ? {}
      : { expandable: oneOf(values.expandable, '--expandable', truths) === 'true' }),
    ...(values.move === undefined ? {} : { movePages: oneOf(values.move, '--move', truths) === 'true' }),
    ...(values.limit === undefined ? {} : { limit: size(values.limit, '--limit') }),
  }
  const conf = parseAllocConf(values.conf ?? '', '--conf')
  if (E.isLeft(conf)) throw new Failed(conf.left)
  const options = allocatorOptions(given, conf.right.options)
  if (E.isLeft(options)) throw new Failed(options.left)
  return options.right
}

const report = (trace: AllocatorTrace, options: ResolvedAllocatorOptions, done: ReplayResult) => {
  const { events, peakLive, peakReserved, segments, nsPerEvent, waits, pagesMoved } = done
  return {
    trace: trace.name,
    device: done.device,
    deviceName: done.deviceName,
    policy: options.policy,
    expandable: options.expandable,
    move: options.movePages,
    ...{ events, peakLive, peakReserved, segments, nsPerEvent, waits, pagesMoved },
    ratio: ratio(peakReserved, peakLive),
    streams: trace.streams,
    runs: done.runs,
    outstanding: done.outstanding,
    callNs: { median: done.nsMedian, p99: done.ns99, longest: done.nsMost },
    moves: { count: done.moves, pages: pagesMoved, ns: done.moveNs },
    pagesMade: done.pagesMade,
    synchronizations: done.synchronizations,
    queries: done.queries,
    served: done.served,
    torch: trace.torch,
  }
}

const ratio = (reserved: number, live: number): number => (live === 0 ? 1 : reserved / live)

export const replay = async (args: readonly string[], out: Output): Promise<number> => {
  const { values, positionals } = parse(args, flags, usage)
  const path = oneWord(positionals, 'TRACE.json.gz', usage)
  const wanted = device(values.device ?? 'auto')
  const memory = values.memory === undefined ? undefined : size(values.memory, '--memory')
  const options = optionsOf(values)
  const trace = readTrace(path)
  if (E.isLeft(trace)) throw new Failed(trace.left)
  try {
    const done = await replayTrace(trace.right, {
      device: wanted,
      allocator: options,
      ...(memory === undefined ? {} : { memory }),
    })
    out.result(report(trace.right, options, done))
    out.say(describe(path, trace.right, options, done, out))
    return 0
  } catch (error) {
    if (!(error instanceof ReplayError)) throw error
    throw new Failed([
      error.fault.at.startsWith('ops[') ? { ...error.fault, at: `${path}: ${error.fault.at}` } : error.fault,
    ])
  }
}

const describe = (
  path: string,
  trace: AllocatorTrace,
  { policy, expandable, movePages }: ResolvedAllocatorOptions,
  done: ReplayResult,
  { styles }: Output,
): string => {
  const { torch } = trace
  const segments = expandable ? (movePages ? 'expandable, pages move' : 'expandable') : 'whole segments'
  const how = `${policy}, ${segments}`
  // Each peak is compared with the requested live bytes, before the allocator's rounding.
  const row = (allocator: string, reserved: number) => [
    allocator,
    bytes(reserved),
    ratio(reserved, done.peakLive).toFixed(4),
  ]
  const peers = [
    ['', 'peak reserved', 'ratio'],
    row(styles.bold(`Braid, ${how}`), done.peakReserved),
    ...(torch.default?.peakReserved === undefined
      ? []
      : [row('PyTorch, default', torch.default.peakReserved)]),
    ...(torch.expandable?.peakReserved === undefined
      ? []
      : [row('PyTorch, expandable segments', torch.expandable.peakReserved)]),
  ]
  const served = fallbacks.filter(name => done.served[name] > 0).map(name => `${name} ${done.served[name]}`)
  const movesPercent = (100 * done.moveNs) / (done.nsPerEvent * done.events)
  const shareOfMoves = `${movesPercent.toFixed(0)}% of the time in calls`
  const moved =
    done.moves === 0
      ? 'none'
      : `${done.pagesMoved} pages in ${done.moves} allocations, ` +
        `${us(done.moveNs / done.moves)} each, ${shareOfMoves}`
  const streams = trace.streams === 1 ? '1 stream' : `${trace.streams} streams`
  const runs = `the median of ${done.runs === 1 ? '1 run' : `${done.runs} runs`}`
  const rows = [
    [
      'trace',
      `${trace.name || path}: ${done.events} events on ${streams}, ` +
        `at most ${done.outstanding} uses outstanding`,
    ],
    ['device', `${done.device}: ${done.deviceName}`],
    ['peak live', bytes(done.peakLive)],
    [
      'calls',
      `${done.nsPerEvent.toFixed(0)} ns an event; ` +
        `a call ${done.nsMedian.toFixed(0)} ns median, ${us(done.ns99)} p99; ${runs}`,
    ],
    ['served', served.join(', ')],
    ['moved', moved],
    ['waits', `${done.waits} put on lanes; the caller waited ${done.synchronizations} times`],
    ['segments', `${done.segments}, ${done.pagesMade} pages made`],
  ]
  return `${table(rows.map(([label, text]) => [styles.bold(label!), text!]))}\n\n${table(peers)}`
}

const us = (ns: number): string => `${(ns / 1000).toFixed(1)} µs`
