import { devicesOf, mostLanesOf } from '../../analysis/device-of.js'
import type { Bounded, Operation } from '../../analysis/ir.js'
import type { Decisions, LaneOrigin, WindowDecision } from '../../analysis/provenance.js'

const originsOf = ({ operations, laneOf, lanes }: Bounded): readonly LaneOrigin[] => {
  const named = lanes.map(() => new Set<string>())
  const chosen = lanes.map(() => new Set<Operation['kind']>())
  operations.forEach(({ lane, kind }, i) => {
    if (lane === undefined) chosen[laneOf[i]!]!.add(kind)
    else named[laneOf[i]!]!.add(lane.name)
  })
  return lanes.map((_, id) => ({ named: [...named[id]!], chosen: [...chosen[id]!] }))
}

const windowsOf = ({ operations, laneOf, lanes, choice }: Bounded): readonly WindowDecision[] => {
  const groups = new Map<string, WindowDecision & { readonly operations: string[] }>()
  operations.forEach(({ ahead: asked, name, at, kind }, i) => {
    if (asked === undefined) return
    const ahead = Math.min(asked, choice?.chosen.ahead ?? asked)
    const gathers = kind === 'collective'
    const key = `${laneOf[i]} ${asked} ${ahead} ${gathers}`
    const group = groups.get(key)
    if (group !== undefined) group.operations.push(name)
    else {
      const lane = lanes[laneOf[i]!]!.name
      groups.set(key, { lane, asked, ahead, operations: [name], gathers, at: String(at) })
    }
  })
  return [...groups.values()]
}

/**
 * What was decided for a plan: names and figures, not the operations themselves, of which there may be
 * millions.
 */
export const decisionsOf = (ir: Bounded): Decisions => ({
  memory: ir.settings.memory,
  mostLanes: mostLanesOf(ir.settings, devicesOf(ir)),
  lanes: originsOf(ir),
  lanesTried: ir.tried ?? [],
  choice: ir.choice,
  changes: ir.changes ?? [],
  windows: windowsOf(ir),
  keepsWindows: ir.keep,
})
