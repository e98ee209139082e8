import type { Plan, PlanBuffer, PlanLane } from '../../dsl/ir/plan.js'
import { at, type Mutation } from './mutations.js'

/** Ways to break a plan by what it says of its buffers, lanes, nodes and figures, with every command as it was. */

const changed = (plan: Plan, b: number, change: Partial<PlanBuffer>): Plan => ({
  ...plan,
  buffers: plan.buffers.map((buffer, i) => (i === b ? { ...buffer, ...change } : buffer)),
})
const some = (
  plan: Plan,
  pick: (count: number) => number,
  test: (buffer: PlanBuffer) => boolean,
): PlanBuffer | undefined => {
  const found = plan.buffers.filter(test)
  return found.length === 0 ? undefined : found[pick(found.length)]!
}
const isView = ({ alias }: PlanBuffer): boolean => alias !== undefined
const isTick = ({ alias, life }: PlanBuffer): boolean => alias === undefined && life === 'tick'

export const placeMutations: readonly Mutation[] = [
  {
    name: 'another home lane',
    laws: ['L3', 'L4', 'L5', 'L6', 'L9'],
    apply: (plan, pick) => {
      const buffer = some(plan, pick, isTick)
      if (buffer === undefined || plan.lanes.length < 2) return undefined
      return {
        plan: changed(plan, buffer.id, { home: (buffer.home + 1 + pick(plan.lanes.length - 1)) % plan.lanes.length }),
      }
    },
  },
  {
    name: 'a lane of another device',
    laws: ['L1', 'L2', 'L3', 'L7'],
    malformed: true,
    apply: (plan, pick) => {
      const l = pick(plan.lanes.length)
      const lanes = plan.lanes.map((lane, i): PlanLane => (i === l ? { ...lane, device: lane.device + 1 } : lane))
      return { plan: { ...plan, lanes } }
    },
  },
  {
    name: 'a buffer on another device than its home',
    laws: ['L1', 'L2', 'L3'],
    malformed: true,
    apply: (plan, pick) => {
      const buffer = some(plan, pick, buffer => isTick(buffer) && buffer.space === 'device')
      return buffer === undefined
        ? undefined
        : { plan: changed(plan, buffer.id, { device: (buffer.device + 1) % 2 }), buffer: buffer.id }
    },
  },
  {
    name: 'memory of another device, and no word of it',
    laws: ['L1', 'L2'],
    apply: (plan, pick) => {
      const abroad = plan.nodes.filter(({ peerAccess }) => peerAccess === true)
      if (abroad.length === 0) return undefined
      const { id } = abroad[pick(abroad.length)]!
      return {
        plan: { ...plan, nodes: plan.nodes.map(node => (node.id === id ? { ...node, peerAccess: false } : node)) },
        command: plan.commands.findIndex(command => command[0] === 'run' && command[1] === id),
      }
    },
  },
  {
    name: 'two buffers of one id',
    laws: ['L3'],
    apply: (plan, pick) => {
      const b = 1 + pick(plan.buffers.length - 1)
      return { plan: changed(plan, b, { id: b - 1 }), command: -1, buffer: b }
    },
  },
  {
    name: 'two lanes of one id',
    laws: ['L7'],
    apply: (plan, pick) => {
      if (plan.lanes.length < 2) return undefined
      const l = 1 + pick(plan.lanes.length - 1)
      return { plan: { ...plan, lanes: plan.lanes.map((lane, i) => (i === l ? { ...lane, id: l - 1 } : lane)) } }
    },
  },
  {
    name: 'two nodes of one id',
    laws: ['L1'],
    apply: (plan, pick) => {
      if (plan.nodes.length < 2) return undefined
      const n = 1 + pick(plan.nodes.length - 1)
      return { plan: { ...plan, nodes: plan.nodes.map((node, i) => (i === n ? { ...node, id: n - 1 } : node)) } }
    },
  },
  {
    name: 'a buffer smaller than its view',
    laws: ['L3'],
    malformed: true,
    apply: (plan, pick) => {
      const view = some(plan, pick, isView)
      if (view === undefined) return undefined
      return { plan: changed(plan, view.alias!, { bytes: (view.aliasOffset ?? 0) + view.bytes - 1 }), buffer: view.id }
    },
  },
  {
    name: 'a larger view',
    laws: ['L3'],
    malformed: true,
    apply: (plan, pick) => {
      const view = some(plan, pick, isView)
      return view === undefined
        ? undefined
        : { plan: changed(plan, view.id, { bytes: plan.buffers[view.alias!]!.bytes + 1 }), buffer: view.id }
    },
  },
  {
    name: 'a view of other bytes',
    laws: ['L1', 'L2', 'L3', 'L4', 'L5', 'L6', 'L9'],
    apply: (plan, pick) => {
      const view = some(plan, pick, isView)
      if (view === undefined || view.aliasOffset === 0) return undefined
      return { plan: changed(plan, view.id, { aliasOffset: 0 }) }
    },
  },
  {
    name: 'a view of a view',
    laws: ['L3'],
    malformed: true,
    apply: (plan, pick) => {
      const view = some(plan, pick, isView)
      const root = view && some(plan, pick, ({ id, alias }) => alias === undefined && id !== view.alias)
      if (view === undefined || root === undefined) return undefined
      return { plan: changed(plan, root.id, { alias: view.id, aliasOffset: 0 }), buffer: root.id }
    },
  },
  {
    name: 'a larger buffer',
    laws: ['L3', 'L4', 'L6', 'L9'],
    apply: (plan, pick) => {
      const buffer = some(plan, pick, ({ alias }) => alias === undefined)
      return buffer === undefined ? undefined : { plan: changed(plan, buffer.id, { bytes: buffer.bytes + 512 }) }
    },
  },
  {
    name: 'another offset in the arena',
    laws: ['L3', 'L4', 'L6', 'L9'],
    apply: (plan, pick) => {
      const buffer = some(plan, pick, ({ offset }) => offset !== undefined)
      if (buffer === undefined) return undefined
      const by = pick(2) === 0 && buffer.offset! >= 512 ? -512 : 512
      return { plan: changed(plan, buffer.id, { offset: buffer.offset! + by }) }
    },
  },
  {
    name: 'no offset at all',
    laws: ['L3'],
    malformed: true,
    apply: (plan, pick) => {
      const buffer = some(plan, pick, ({ offset }) => offset !== undefined)
      if (buffer === undefined) return undefined
      const { offset: _, ...rest } = buffer
      const buffers = plan.buffers.map((other, b) => (b === buffer.id ? rest : other))
      return { plan: { ...plan, buffers }, buffer: buffer.id }
    },
  },
  {
    name: 'an arena that ends too early',
    laws: ['L9'],
    malformed: true,
    apply: (plan, pick) => {
      const buffer = some(plan, pick, ({ offset }) => offset !== undefined)
      if (buffer === undefined) return undefined
      const arena = plan.arena!.with(buffer.device, buffer.offset! + buffer.bytes - 1)
      return { plan: { ...plan, arena }, buffer: buffer.id }
    },
  },
  {
    name: 'a tick buffer that lives on',
    laws: ['L1', 'L2', 'L3', 'L4', 'L6', 'L9'],
    apply: (plan, pick) => {
      const buffer = some(plan, pick, isTick)
      if (buffer === undefined || plan.buffers.some(({ alias }) => alias === buffer.id)) return undefined
      return { plan: changed(plan, buffer.id, { life: 'state', dtype: 'f32', init: 0 }) }
    },
  },
  {
    name: 'a state without its first value',
    laws: ['L1'],
    apply: plan => {
      const state = plan.buffers.find(({ life }) => life === 'state')
      const read = plan.commands.findIndex(command => command[0] === 'run' && command[3].includes(state?.id ?? -1))
      if (state === undefined || read < 0) return undefined
      const { init: _, ...rest } = state
      return { plan: { ...plan, buffers: plan.buffers.map(buffer => (buffer === state ? rest : buffer)) } }
    },
  },
  {
    name: 'more ticks in flight',
    laws: ['L1', 'L2', 'L3', 'L4', 'L6', 'L9'],
    apply: plan => ({ plan: { ...plan, inFlight: plan.inFlight + 1 } }),
  },
  {
    name: 'fewer ticks in flight',
    laws: ['L6'],
    apply: plan => (plan.inFlight === 1 ? undefined : { plan: { ...plan, inFlight: plan.inFlight - 1 } }),
  },
  {
    name: 'a planned plan called pooled',
    laws: ['L3', 'L9'],
    apply: plan => (plan.storage === 'pooled' ? undefined : { plan: { ...plan, storage: 'pooled' } }),
  },
  {
    name: 'a pooled plan called planned',
    laws: ['L3', 'L4'],
    malformed: true,
    apply: (plan, pick) => {
      if (plan.storage === 'planned') return undefined
      const command = at(plan, pick, ([op]) => op === 'alloc' || op === 'free')
      if (command < 0) return undefined
      return { plan: { ...plan, storage: 'planned', arena: plan.bound.device }, command }
    },
  },
  {
    name: 'a bound that is no number',
    laws: ['L9'],
    malformed: true,
    apply: (plan, pick) => {
      const d = pick(plan.devices)
      const bad = [Number.NaN, Number.POSITIVE_INFINITY, undefined][pick(3)] as number
      const device = plan.bound.device.map((bytes, i) => (i === d ? bad : bytes))
      return plan.bound.device[d] === 0 ? undefined : { plan: { ...plan, bound: { ...plan.bound, device } } }
    },
  },
  {
    name: 'a place before the arena',
    laws: ['L3'],
    malformed: true,
    apply: (plan, pick) => {
      const buffer = some(plan, pick, ({ offset }) => offset !== undefined)
      if (buffer === undefined) return undefined
      return {
        plan: changed(plan, buffer.id, { offset: [-1, -buffer.bytes, Number.NaN][pick(3)]! }),
        buffer: buffer.id,
      }
    },
  },
  {
    name: 'a wait for no tick that there is',
    laws: ['L7'],
    malformed: true,
    apply: (plan, pick) => {
      const waits = plan.commands.flatMap(([op], c) => (op === 'wait' ? [c] : []))
      if (waits.length === 0) return undefined
      const c = waits[pick(waits.length)]!
      const far = [...plan.commands[c]!.slice(0, 3), [-2, 1, 0, '-1'][pick(4)]] as unknown as Plan['commands'][number]
      return { plan: { ...plan, commands: plan.commands.with(c, far) }, command: c }
    },
  },
]
