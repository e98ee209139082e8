// Whether a graph yields on a device what `interpret` yields, bit for bit.
import { lastValueFrom, toArray } from 'rxjs'
import { expect } from 'vitest'
import type { CompileOptions } from '../../dsl/index.js'
import { type Graph, interpret, type Ports } from '../../dsl/index.js'
import type { HostArray } from '../../dsl/language/values.js'
import type { HostOptions } from '../../runtime/index.js'
import { opened } from './devices.js'
import { outputsOf, type Values } from './meant.js'

export interface Running {
  readonly compile?: CompileOptions
  readonly params?: Readonly<Record<string, HostArray>>
  /** Options of the host device, beside jitter and poison. */
  readonly host?: HostOptions
  readonly seed?: number
}

/** The outputs of every tick, on a device with random timing whose freed memory holds garbage. */
export const ran = async (
  graph: Graph<Ports, Ports>,
  device: string,
  feeds: Readonly<Record<string, readonly HostArray[]>>,
  { compile = {}, params = {}, host = {}, seed = 1 }: Running = {},
): Promise<readonly Values[]> => {
  const shaken =
    device === 'host' ? { host: { jitter: seed, jitterMicroseconds: 100, poison: true, ...host } } : {}
  await using session = await opened(graph, device, { compile, params, poison: true, ...shaken })
  return await outputsOf(session as never, { feeds })
}

/** Checks that the graph yields on the device, bit for bit, what `interpret` yields. Returns the outputs. */
export const expectMeaning = async (
  graph: Graph<Ports, Ports>,
  device: string,
  feeds: Readonly<Record<string, readonly HostArray[]>>,
  running: Running = {},
): Promise<readonly Values[]> => {
  const { compile = {}, params = {} } = running
  const options = {
    params,
    ...(compile.dims ? { dims: compile.dims } : {}),
  }
  const meant = await lastValueFrom(interpret(graph, options as never)(feeds as never).pipe(toArray()))
  const got = await ran(graph, device, feeds, running)
  expect(meant.length).toBeGreaterThan(0)
  expect(got).toEqual(meant)
  return got
}
