import * as E from 'fp-ts/lib/Either.js'
import type { Plan } from '../../ir/plan.js'
import { type PlanWorkload, workloadOf } from '../../machine/simulate/plan-workload.js'
import { play } from '../../machine/simulate/simulator.js'
import { playUntilSteady } from '../../machine/simulate/steady-state.js'
import { aloneOf } from '../analysis/costs.js'
import type { Lowered } from '../analysis/ir.js'
import type { Settings } from '../analysis/options.js'
import type { Passed } from '../analysis/pass.js'
import { worth } from '../analysis/predict.js'
import { type Arenas, provenanceOf, recordProvenance } from '../analysis/provenance.js'
import { stateCoresOf } from '../analysis/state-cores.js'

/** Runs of all simulated ticks, at most. */
const played = 2 ** 15
/** Up to so many operations whole plans are simulated, tick by tick. */
export const mostSimulated = 2 ** 13
/**
 * Where the predictions are equal ticks get arenas of their own for at most so much of the bytes of one. A
 * prediction takes a device for full that has gaps still: what else could run in them is left to the device.
 */
export const cheap = 1.25

const bytesOf = ({ bound }: Plan): number => bound.device.reduce((sum, bytes) => sum + bytes, 0)

type Machine = Pick<Settings, 'machine' | 'profile'>

/**
 * Predicted nanoseconds from tick to tick, the program's own thread included; of ticks with lanes of their
 * own where the plan has several arenas, unless `laneSets` is 1.
 */
export const tickOf = (plan: Plan, machine: Machine, laneSets = plan.arenas ?? 1): number => {
  const ticks = provenanceOf(plan)?.compared?.ticks
  const known = ticks?.get(laneSets)
  if (known !== undefined) return known
  const workload = { ...workloadFor(plan, machine), laneSets }
  if (workload.runs === 0) return 0
  const most = Math.max(4, plan.inFlight + 2, Math.floor(played / workload.runs) - plan.inFlight)
  const tick = Math.max(playUntilSteady(workload, Math.min(64, most)).pace.tick, workload.usage.power)
  ticks?.set(laneSets, tick)
  return tick
}

/** Predicted nanoseconds from the start to the end of a tick that has the devices for itself. */
export const latencyOf = (plan: Plan, machine: Machine): number => {
  const workload = workloadFor(plan, machine)
  return workload.runs === 0 ? 0 : play(workload, 1).ended[0]!
}

const workloadFor = (plan: Plan, { machine, profile }: Machine): PlanWorkload => {
  const compared = provenanceOf(plan)?.compared
  const workload = compared?.workload ?? workloadOf(plan, machine, profile)
  if (compared !== undefined) compared.workload = workload
  return workload
}

/** Of the time of all operations: where states hold more of it, ticks hardly overlap. */
const mostHeld = 0.9

/** What a graph adds to a tick that has the devices for itself, measured on an H200: nanoseconds. */
const betweenGraphs = 3400
/** The part of such a tick that graphs around states may add, unless `memory: 'fast'` is said. */
const mostAdded = 0.2

/** Why the graphs around states would make a tick too late for a host that waits for it; undefined: they do not. */
const whyTooLate = (plan: Plan, settings: Settings): string | undefined => {
  if (settings.memory === 'fast' && settings.memoryIsGiven) return undefined
  const { graphs = [] } = plan
  // Between other graphs stands a kernel that is in none, with one arena too.
  const cuts = graphs.filter(({ to }, g) => graphs[g + 1]?.from === to).length
  if (cuts === 0) return undefined
  const added = cuts * betweenGraphs
  const alone = latencyOf(plan, settings)
  if (added <= mostAdded * alone) return undefined
  return (
    `around its states a tick would be ${graphs.length} graphs, and by itself ${Math.round((100 * added) / alone)} % ` +
    "longer; memory: 'fast' takes that"
  )
}

/** Why ticks in flight cannot overlap, whatever memory they have; undefined where they can. */
const whyOneArena = (ir: Lowered): string | undefined => {
  const { settings, operations, control = [] } = ir
  if (settings.inFlight === 1) return 'one tick in flight: the host waits for its end'
  if (operations.length === 0) return 'it has no operations'
  const { name } = operations.find(({ collective }) => collective !== undefined) ?? {}
  if (name !== undefined) return `ranks come to ${name} in the order of ticks`
  const held = stateCoresOf(ir)
  if (held !== undefined) {
    const [{ name: first } = { name: '' }, ...more] = held.states
    const which = more.length === 0 ? `the state ${first}` : `the state ${first} and ${more.length} more`
    if (operations.length > mostSimulated)
      return `it writes ${which}; of so many operations it is not known what that holds up`
    if (control.some(({ when }) => when === 'start'))
      return `it writes ${which}, and the program orders starts of operations`
    const alone = aloneOf(operations, settings)
    const all = alone.reduce((sum, time) => sum + time, 0)
    const within = alone.reduce((sum, time, i) => sum + (held.coreOf[i] === -1 ? 0 : time), 0)
    if (within > mostHeld * all)
      return `${Math.round((100 * within) / all)} % of its work lies between reading and writing ${which}`
  }
  return settings.memory === 'small' ? "memory: 'small' asks for the least bytes" : undefined
}

const explained = (plan: Plan, arenas: Arenas): Plan => {
  const provenance = provenanceOf(plan)!
  recordProvenance(plan, { ...provenance, decisions: { ...provenance.decisions, arenas } })
  return plan
}

/**
 * In graph mode the plan with one arena for all ticks in flight, or with one for each: then ticks overlap on
 * the device. Each has one where that fits the memory and makes the predicted tick shorter, or leaves it as
 * long and costs few bytes; where nothing is predicted, where it fits.
 */
export const chooseArenas =
  (planned: (ir: Lowered) => Passed<Plan>) =>
  (ir: Lowered): Passed<Plan> => {
    const { settings } = ir
    const { inFlight, memory, mode } = settings
    if (mode !== 'graph') return planned(ir)
    let alone: Passed<Plan> | undefined
    const withOne = (): Passed<Plan> => {
      alone ??= planned({ ...ir, settings: { ...settings, arenas: 1 } })
      return alone
    }
    const one = (because: string, ticks?: Arenas['ticks']): Passed<Plan> =>
      E.map((plan: Plan) => explained(plan, { because, ...(ticks === undefined ? {} : { ticks }) }))(
        withOne(),
      )
    const why = whyOneArena(ir)
    if (why !== undefined) return one(why)
    // `small` has one arena, so what holds less than that with one is too little.
    if (typeof memory === 'number' && E.isLeft(withOne())) return withOne()
    const several = planned({ ...ir, settings: { ...settings, arenas: inFlight } })
    if (E.isLeft(several) && typeof memory !== 'number') return several
    if (E.isLeft(several)) return one(`${inFlight} do not fit in ${memory} bytes`)
    if (ir.operations.length > mostSimulated)
      return E.right(
        explained(several.right, { because: 'ticks overlap; of so many operations none is predicted' }),
      )
    const tooLate = whyTooLate(several.right, settings)
    if (tooLate !== undefined) return one(tooLate)
    // Under a limit one arena may leave memory for an order that is faster; else ticks in lanes that they
    // share take as long as with one arena.
    const limited = typeof memory === 'number' ? withOne() : several
    const ticks = {
      one: E.isRight(limited) ? tickOf(limited.right, settings, 1) : Number.POSITIVE_INFINITY,
      several: tickOf(several.right, settings),
    }
    const overlapping = E.right(explained(several.right, { because: 'ticks overlap', ticks }))
    if (ticks.several < ticks.one * (1 - worth)) return overlapping
    const together = one('ticks would gain nothing by overlapping', ticks)
    if (E.isLeft(together) || ticks.several > ticks.one * (1 + worth)) return together
    const most = Math.floor(cheap * bytesOf(together.right))
    if (bytesOf(several.right) <= most) return overlapping
    if (memory !== 'fast') return together
    // Fewer lanes may do in these bytes.
    const fewer = planned({ ...ir, settings: { ...settings, arenas: inFlight, memory: most } })
    if (E.isLeft(fewer) || tickOf(fewer.right, settings) > ticks.one * (1 + worth)) return together
    return E.right(explained(fewer.right, { because: 'ticks overlap', ticks }))
  }
