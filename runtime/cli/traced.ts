import * as E from 'fp-ts/lib/Either.js'
import { type MeasuredRun, timesOf } from '../../dsl/internal.js'
import { readTrace } from '../trace/trace-read.js'
import { bytesOf } from './files.js'
import { Failed } from './io.js'

export const nextTrace = 'write one with: braid run PROGRAM --ticks 20 --trace FILE'

/** The runs of a trace file. */
export const traceFrom = (path: string): readonly MeasuredRun[] => {
  const trace = readTrace(bytesOf(path, 'trace', nextTrace), path)
  if (E.isLeft(trace)) throw new Failed([trace.left])
  return trace.right
}

/** `--profile`: nanoseconds by name of operation, as a trace measured them. */
export const profileFrom = (path: string): Readonly<Record<string, number>> =>
  Object.fromEntries(timesOf(traceFrom(path)))
