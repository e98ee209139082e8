// Plans that are run on a device, or on several, eagerly and in graph mode: of the same kernels both must
// yield the same bits.
import { expect } from 'vitest'
import type { CompileOptions, Graph, Plan, Ports } from '../../dsl/index.js'
import type { HostArray } from '../../dsl/language/values.js'
import { pulled, type Session } from '../../runtime/index.js'
import { opened } from './devices.js'
import { outputsOf, type Values } from './meant.js'

export interface Case {
  readonly graph: Graph<Ports, Ports>
  readonly compile?: CompileOptions
  readonly params?: Readonly<Record<string, HostArray>>
  readonly feeds: Readonly<Record<string, readonly HostArray[]>>
  readonly ticks?: number
}

export const floats = (length: number, of: (i: number) => number): Float32Array =>
  Float32Array.from({ length }, (_, i) => of(i))

/** Rows of four different values each. */
export const rows = (count: number): readonly Float32Array[] =>
  Array.from({ length: count }, (_, tick) => floats(4, i => tick * 4 + i))

/** The kernels of a plan, in any order. */
const kernelsOf = ({ nodes }: Plan): readonly string[] =>
  nodes
    .flatMap(({ kernel }) => (kernel === undefined || kernel.kind === 'copy' ? [] : [JSON.stringify(kernel)]))
    .sort()

/** Runs cases; `more` are options of compile for all of them, and each plan is `seen` after its run. */
export const runner = (
  device: string | readonly string[],
  more: CompileOptions = {},
  seen: (plan: Plan, stats: ReturnType<Session['stats']>) => void = () => undefined,
) => {
  const onHost = [device].flat()[0]!.startsWith('host')
  const shaken = (seed: number) =>
    onHost ? { host: { jitter: seed, jitterMicroseconds: 60, poison: true } } : {}

  const ran = async (made: Case, mode: 'eager' | 'graph', seed: number) => {
    const compile: CompileOptions = { ...made.compile, ...more, storage: 'planned', mode }
    const options = { compile, params: made.params ?? {}, poison: true, ...shaken(seed) }
    await using session = await opened(made.graph, device, options)
    const got = await outputsOf(session as never, made)
    const stats = session.stats()
    const launches = stats.ticks * (session.plan.graphs?.length ?? 0)
    // GPUs that do not reach each other have graphs of their own.
    if (onHost || session.plan.devices === 1) expect(stats.graphLaunches).toBe(launches)
    else expect(stats.graphLaunches).toBeGreaterThanOrEqual(launches)
    seen(session.plan, stats)
    return { got, kernels: kernelsOf(session.plan) }
  }

  const outputs = async (made: Case, mode: 'eager' | 'graph', seed: number): Promise<readonly Values[]> =>
    (await ran(made, mode, seed)).got

  /**
   * What both modes yield: once, where it is the same bits, as it must be of the same kernels. The compiler may
   * take others in one mode than in the other one, where a launch costs less (decision 302).
   */
  const expectSame = async (made: Case, seed: number): Promise<readonly (readonly Values[])[]> => {
    const eager = await ran(made, 'eager', seed)
    const graph = await ran(made, 'graph', seed + 1)
    expect(eager.got.length).toBeGreaterThan(0)
    if (graph.kernels.join() !== eager.kernels.join()) return [eager.got, graph.got]
    expect(graph.got).toEqual(eager.got)
    return [eager.got]
  }

  /**
   * Runs ticks whose reader keeps up to three leases and gives the middle one back first, so slots come free
   * out of turn.
   */
  const expectKept = async (made: Omit<Case, 'feeds'>, check: (plan: Plan) => void = () => undefined) => {
    const feeds = { x: rows(30) }
    const wanted = await outputs({ ...made, feeds }, 'eager', 7)
    const compile: CompileOptions = { ...made.compile, ...more, storage: 'planned', mode: 'graph' }
    await using session = await opened(made.graph, device, {
      compile,
      params: made.params ?? {},
      ...shaken(7),
    })
    check(session.plan)
    const held: { readonly lease: Disposable & { readonly y: Float32Array }; readonly tick: number }[] = []
    const giveBack = (at: number): void => {
      const [{ lease, tick }] = held.splice(at, 1) as [(typeof held)[0]]
      expect([...lease.y]).toEqual([...(wanted[tick]!['y'] as Float32Array)])
      lease[Symbol.dispose]()
    }
    let tick = 0
    for await (const lease of session.run({ x: pulled(feeds.x) } as never)) {
      held.push({ lease: lease as never, tick: tick++ })
      if (held.length === 3) giveBack(1)
    }
    while (held.length > 0) giveBack(0)
    expect(tick).toBe(30)
  }
  return { onHost, shaken, outputs, expectSame, expectKept }
}
