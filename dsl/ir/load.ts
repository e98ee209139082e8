import * as E from 'fp-ts/lib/Either.js'
import type { ReadonlyNonEmptyArray } from 'fp-ts/lib/ReadonlyNonEmptyArray.js'
import { outOfBounds } from './extents.js'
import { jsonOf } from './json-parts.js'
import { limits } from './limits.js'
import { checkAgreement } from './load-agreement.js'
import { readCollective, readCommunicator } from './load-collective.js'
import { readDType, readKernel } from './load-kernel.js'
import {
  boundKinds,
  type Command,
  type Plan,
  type PlanBuffer,
  type PlanGraph,
  type PlanLane,
  type PlanNode,
} from './plan.js'
import { runsOf } from './plan-runs.js'
import { Enough, type PlanFault, Reader, show } from './reader.js'
import { byteFaults } from './run-bytes.js'
import { viewErrors } from './views.js'

export { limits } from './limits.js'
export type { PlanFault, PlanFaultTag } from './reader.js'

/**
 * A plan from the text of a file, or from any value: all its faults at once (up to `limits.faults`), or a
 * plan that is built anew, field by field, so that nothing of the input stays in it. Fields that the format
 * does not have are dropped. This is the one place where the form and the ranges of a plan are checked; the
 * laws are `verify`'s. Never throws.
 */
export const parsePlan = (input: string | unknown): Parsed => parsed(new Reader(), r => planIn(r, input))

/**
 * As `parsePlan`, of a text that comes in parts, in order: a plan of a million nodes is longer than a string
 * can be.
 */
export const parsePlanParts = (parts: Iterable<string>): Parsed => {
  // The result of JSON.parse belongs to this reader alone.
  const r = new Reader(true)
  return parsed(r, () => readPlan(r, jsonOf(parts, r)))
}

type Parsed = E.Either<ReadonlyNonEmptyArray<PlanFault>, Plan>

const planIn = (r: Reader, input: unknown): Plan =>
  readPlan(r, typeof input === 'string' ? JSON.parse(input) : input)

const parsed = (r: Reader, read: (r: Reader) => Plan): Parsed => {
  try {
    const plan = read(r)
    if (r.faults.length === 0) return E.right(plan)
  } catch (error) {
    // Not a JSON text; or a value that throws when it is read (a getter, a revoked proxy).
    if (!(error instanceof Enough)) {
      const found = error instanceof Error ? String(error.message).slice(0, 200) : show(error)
      r.faults.push({
        _tag: 'BadJson',
        at: 'plan',
        subject: 'plan',
        wanted: 'a plan as JSON',
        found,
        next: 'write one with: braid plan PROGRAM --as json',
      })
    }
  }
  return E.left(r.faults as readonly PlanFault[] as ReadonlyNonEmptyArray<PlanFault>)
}

const readPlan = (r: Reader, value: unknown): Plan => {
  const top = r.object(value, 'plan')
  const get = (key: string) => r.field(top, key)
  const version = get('plan')
  if (version !== 1) {
    r.fault(
      'BadVersion',
      'plan.plan',
      'plan',
      'format 1',
      version === undefined ? 'nothing' : show(version),
      'write the plan again with this version of Braid',
    )
  }
  const devices = r.integer(get('devices'), 'plan.devices', 1, limits.devices)
  const inFlight = r.integer(get('inFlight'), 'plan.inFlight', 1, limits.inFlight)
  const storage = r.oneOf(get('storage'), 'plan.storage', ['pooled', 'planned'])
  const perDevice = (list: unknown, at: string) => {
    const sizes = r.list(list, at, limits.devices).map((n, d) => r.integer(n, `${at}[${d}]`, 0, limits.bytes))
    if (sizes.length !== devices)
      r.fault(
        'OutOfRange',
        at,
        at,
        `${devices} sizes, one for each device`,
        `${sizes.length}`,
        'give one for each device',
      )
    return sizes
  }
  const bound = r.object(get('bound'), 'plan.bound')
  const kind = get('boundKind')
  if (kind !== undefined && storage === 'planned')
    r.wrong('plan.boundKind', 'no boundKind, since an arena is always as large as it says', kind)
  const arena = get('arena')
  if (storage === 'planned' && arena === undefined)
    r.wrong('plan.arena', 'the bytes of each arena, since storage is planned', arena)

  const graphs = get('graphs')
  const arenas = get('arenas')
  if (arenas !== undefined && (graphs === undefined || (Array.isArray(graphs) && graphs.length === 0)))
    r.wrong('plan.arenas', 'no arenas without graphs: only ticks of graphs have arenas of their own', arenas)

  const lanes = r.list(get('lanes'), 'plan.lanes', limits.lanes)
  const buffers = r.list(get('buffers'), 'plan.buffers', limits.buffers)
  const nodes = r.list(get('nodes'), 'plan.nodes', limits.nodes)
  const commands = r.list(get('commands'), 'plan.commands', limits.commands)
  const given = get('communicators')
  const communicators = given === undefined ? [] : r.list(given, 'plan.communicators', limits.communicators)
  const tolerance = get('tolerance')
  if (graphs !== undefined && storage !== 'planned')
    r.wrong(
      'plan.graphs',
      'no graphs, since only planned storage has the same addresses in every tick',
      graphs,
    )
  const counts: Counts = {
    devices,
    lanes: lanes.length,
    buffers: buffers.length,
    nodes: nodes.length,
    commands: commands.length,
    communicators: communicators.length,
    planned: storage === 'planned',
  }
  const plan: Plan = {
    plan: 1,
    name: r.string(get('name'), 'plan.name', limits.name),
    devices,
    inFlight,
    storage,
    bound: {
      device: perDevice(r.field(bound, 'device'), 'plan.bound.device'),
      pinned: r.integer(r.field(bound, 'pinned'), 'plan.bound.pinned', 0, limits.bytes),
    },
    ...(kind === undefined ? {} : { boundKind: r.oneOf(kind, 'plan.boundKind', boundKinds) }),
    ...(storage === 'planned' ? { arena: perDevice(arena ?? [], 'plan.arena') } : {}),
    ...(arenas === undefined ? {} : { arenas: r.integer(arenas, 'plan.arenas', 2, limits.inFlight) }),
    lanes: r.each(lanes, (lane, i) => readLane(r, lane, i, counts)),
    buffers: r.each(buffers, (buffer, i) => readBuffer(r, buffer, i, counts)),
    nodes: r.each(nodes, (node, i) => readNode(r, node, i, counts)),
    commands: r.each(
      commands,
      (command, i) => formedCommand(command, counts) ?? readCommand(r, command, `commands[${i}]`, counts),
    ),
    ...(given === undefined
      ? {}
      : { communicators: communicators.map((value, i) => readCommunicator(r, value, i)) }),
    ...(graphs === undefined
      ? {}
      : {
          graphs: r.each(r.list(graphs, 'plan.graphs', limits.commands), (graph, i) =>
            readGraph(r, graph, i, counts),
          ),
        }),
    ...(tolerance === undefined ? {} : { tolerance: r.finite(tolerance, 'plan.tolerance', 0) }),
  }
  checkViews(r, plan)
  checkTotal(r, plan)
  // Fields are compared, and extents checked, only where every id is valid; which bytes hold values is judged
  // where all extents are.
  if (r.faults.length > 0) return plan
  checkAgreement(r, plan)
  checkExtents(r, plan)
  if (r.faults.length === 0) checkBytes(r, plan)
  return plan
}

interface Counts {
  readonly devices: number
  readonly lanes: number
  readonly buffers: number
  readonly nodes: number
  readonly commands: number
  readonly communicators: number
  readonly planned: boolean
}

const readLane = (r: Reader, value: unknown, index: number, counts: Counts): PlanLane => {
  const at = `lanes[${index}]`
  const lane = r.object(value, at)
  return {
    id: r.ownIndex(r.field(lane, 'id'), at, index),
    name: r.string(r.field(lane, 'name'), `${at}.name`, limits.name),
    device: r.id(r.field(lane, 'device'), `${at}.device`, counts.devices, 'device'),
    priority: r.integer(r.field(lane, 'priority'), `${at}.priority`, -1000, 1000),
  }
}

const readBuffer = (r: Reader, value: unknown, index: number, counts: Counts): PlanBuffer => {
  const at = `buffers[${index}]`
  const buffer = r.object(value, at)
  const get = (key: string) => r.field(buffer, key)
  const bytes = r.integer(get('bytes'), `${at}.bytes`, 0, limits.bytes)
  const space = r.oneOf(get('space'), `${at}.space`, ['device', 'pinned'])
  const life = r.oneOf(get('life'), `${at}.life`, ['tick', 'state', 'param', 'input', 'output'])
  const alias = get('alias')
  const aliasOffset = get('aliasOffset')
  const offset = get('offset')
  if (bytes === 0 && (life === 'tick' || alias !== undefined))
    r.fault(
      'OutOfRange',
      `${at}.bytes`,
      'bytes',
      alias === undefined ? 'at least 1 byte of a buffer of the tick' : 'at least 1 byte of a view',
      '0',
      'leave out what has no elements, or give it room for one',
    )
  const slotted = life === 'input' || life === 'output'
  if (counts.planned && space === 'device' && alias === undefined && !slotted && offset === undefined) {
    r.wrong(`${at}.offset`, 'its place in the arena, since storage is planned', undefined)
  }
  if (typeof offset === 'number' && offset % limits.arenaAlignment !== 0)
    r.wrong(`${at}.offset`, `a multiple of ${limits.arenaAlignment}`, offset)
  return {
    id: r.ownIndex(get('id'), at, index),
    name: r.string(get('name'), `${at}.name`, limits.name),
    bytes,
    space,
    device: r.id(get('device'), `${at}.device`, counts.devices, 'device'),
    home: r.id(get('home'), `${at}.home`, counts.lanes, 'lane'),
    life,
    ...(alias === undefined ? {} : { alias: r.id(alias, `${at}.alias`, counts.buffers, 'buffer') }),
    ...(aliasOffset === undefined
      ? {}
      : { aliasOffset: r.integer(aliasOffset, `${at}.aliasOffset`, 0, limits.bytes) }),
    ...(offset === undefined ? {} : { offset: r.integer(offset, `${at}.offset`, 0, limits.bytes) }),
    ...readContent(r, get, at),
    ...readRate(r, get, at, bytes),
  }
}

/** The rate of an input or output; its values lie one after the other. */
const readRate = (
  r: Reader,
  get: (key: string) => unknown,
  at: string,
  bytes: number,
): Pick<PlanBuffer, 'rate'> => {
  if (get('rate') === undefined) return {}
  const rate = r.integer(get('rate'), `${at}.rate`, 1, limits.rate)
  const life = get('life')
  if (life !== 'input' && life !== 'output')
    r.wrong(`${at}.life`, 'an input or output, as it has a rate', life)
  const shape = get('shape')
  if (Array.isArray(shape) ? shape[0] !== rate : bytes % rate !== 0)
    r.fault(
      'OutOfRange',
      `${at}.rate`,
      'rate',
      Array.isArray(shape) ? `${shape[0]}, the first of its dimensions` : `a divisor of its ${bytes} bytes`,
      `${rate}`,
      'a buffer holds all values of a tick',
    )
  return { rate }
}

/** The contents of a buffer: its element type and shape, and the initial value of a state. */
const readContent = (
  r: Reader,
  get: (key: string) => unknown,
  at: string,
): Pick<PlanBuffer, 'dtype' | 'shape' | 'init'> => {
  const content: {
    dtype?: NonNullable<PlanBuffer['dtype']>
    shape?: readonly number[]
    init?: NonNullable<PlanBuffer['init']>
  } = {}
  const dtype = get('dtype')
  if (dtype !== undefined) content.dtype = readDType(r, dtype, `${at}.dtype`)
  const shape = get('shape')
  if (shape !== undefined) {
    content.shape = r
      .list(shape, `${at}.shape`, limits.rank)
      .map((n, d) => r.integer(n, `${at}.shape[${d}]`, 0, limits.bytes))
  }
  const elements = content.shape?.reduce((product, size) => product * size, 1)
  const init = get('init')
  if (Array.isArray(init)) {
    content.init = r.list(init, `${at}.init`, limits.init).map((n, i) => r.number(n, `${at}.init[${i}]`))
    if (init.length !== elements) {
      r.fault(
        'OutOfRange',
        `${at}.init`,
        'init',
        `${elements ?? 'as many values as its shape says'} values`,
        `${init.length}`,
        'give one value for all, or each',
      )
    }
  } else if (init === 'given') content.init = init
  else if (init !== undefined) content.init = r.number(init, `${at}.init`)
  if (init !== undefined && content.dtype === undefined)
    r.wrong(`${at}.dtype`, 'the element type of its initial value', undefined)
  return content
}

const readNode = (r: Reader, value: unknown, index: number, counts: Counts): PlanNode => {
  const at = `nodes[${index}]`
  const node = r.object(value, at)
  const get = (key: string) => r.field(node, key)
  const work = (key: string) => (get(key) === undefined ? undefined : r.finite(get(key), `${at}.${key}`, 0))
  const kernel = get('kernel')
  const collective = get('collective')
  const after = get('after')
  const donates = get('donates')
  const peerAccess = get('peerAccess')
  const flops = work('flops')
  const movedBytes = work('movedBytes')
  return {
    id: r.ownIndex(get('id'), at, index),
    op: r.string(get('op'), `${at}.op`, limits.name),
    name: r.string(get('name'), `${at}.name`, limits.name),
    at: r.string(get('at'), `${at}.at`, limits.name),
    ...(kernel === undefined
      ? {}
      : { kernel: r.shared(kernel, () => readKernel(r, kernel, `${at}.kernel`)) }),
    ...(collective === undefined
      ? {}
      : { collective: readCollective(r, collective, `${at}.collective`, counts.communicators) }),
    ...(after === undefined ? {} : { after: readAfter(r, after, `${at}.after`, counts) }),
    ...(donates === undefined ? {} : { donates: readDonates(r, donates, `${at}.donates`) }),
    ...(peerAccess === undefined ? {} : { peerAccess: r.boolean(peerAccess, `${at}.peerAccess`) }),
    ...(flops === undefined ? {} : { flops }),
    ...(movedBytes === undefined ? {} : { movedBytes }),
  }
}

const readAfter = (r: Reader, value: unknown, at: string, counts: Counts): NonNullable<PlanNode['after']> =>
  r.list(value, at, limits.accesses).map((edge, i) => {
    const words = r.list(edge, `${at}[${i}]`, 2)
    return [
      r.id(words[0], `${at}[${i}][0]`, counts.nodes, 'node'),
      r.oneOf(words[1], `${at}[${i}][1]`, ['start', 'finish']),
    ]
  })

const readDonates = (r: Reader, value: unknown, at: string): NonNullable<PlanNode['donates']> =>
  r.list(value, at, limits.accesses).map((given, i) => {
    const words = r.list(given, `${at}[${i}]`, 2)
    const place = (word: unknown, j: number) => r.integer(word, `${at}[${i}][${j}]`, 0, limits.accesses - 1)
    return [place(words[0], 0), place(words[1], 1)]
  })

const readGraph = (r: Reader, value: unknown, index: number, counts: Counts): PlanGraph => {
  const at = `graphs[${index}]`
  const graph = r.object(value, at)
  const edges = r.list(r.field(graph, 'edges'), `${at}.edges`, limits.edges)
  return {
    from: r.integer(r.field(graph, 'from'), `${at}.from`, 0, counts.commands),
    to: r.integer(r.field(graph, 'to'), `${at}.to`, 0, counts.commands),
    edges: r.each(
      edges,
      (edge, i) => formedEdge(edge, counts) ?? readEdge(r, edge, `${at}.edges[${i}]`, counts),
    ),
  }
}

/** A copy of a valid edge; undefined for an invalid one, whose fault `readEdge` finds. */
const formedEdge = (value: unknown, { commands }: Counts): PlanGraph['edges'][number] | undefined => {
  if (!Array.isArray(value) || value.length !== 2) return undefined
  const before: unknown = value[0]
  const after: unknown = value[1]
  return isBelow(before, commands) && isBelow(after, commands) ? [before, after] : undefined
}

const readEdge = (r: Reader, value: unknown, at: string, counts: Counts): PlanGraph['edges'][number] => {
  const ends = r.list(value, at, 2)
  return [
    r.id(ends[0], `${at}[0]`, counts.commands, 'command'),
    r.id(ends[1], `${at}[1]`, counts.commands, 'command'),
  ]
}

/** The operands of each command, in order: the kind of id of each. */
const forms: Readonly<Record<Command[0], readonly ('buffer' | 'lane' | 'event' | 'node' | 'buffers')[]>> = {
  alloc: ['buffer', 'lane'],
  free: ['buffer'],
  run: ['node', 'lane', 'buffers', 'buffers'],
  record: ['event', 'lane'],
  wait: ['event', 'lane'],
  use: ['buffer', 'lane', 'event'],
}

const isBelow = (value: unknown, count: number): value is number =>
  typeof value === 'number' && value >>> 0 === value && value < count

/** A copy of a list of ids; undefined where it is not one. */
const idsBelow = (value: unknown, count: number): readonly number[] | undefined => {
  if (!Array.isArray(value) || value.length > limits.accesses) return undefined
  const ids: number[] = []
  for (let i = 0; i < value.length; i++) {
    const id: unknown = value[i]
    if (!isBelow(id, count)) return undefined
    ids.push(id)
  }
  return ids
}

/**
 * A copy of a valid command; undefined for an invalid one, whose fault `readCommand` finds. There are
 * millions of commands, so valid ones are read without making the texts of their places.
 */
const formedCommand = (value: unknown, counts: Counts): Command | undefined => {
  if (!Array.isArray(value)) return undefined
  const op: unknown = value[0]
  const { length } = value
  if (typeof op !== 'string' || !Object.hasOwn(forms, op)) return undefined
  const form = forms[op as Command[0]]
  const isPrevious = op === 'wait' && length === 4
  if (length !== form.length + 1 && !isPrevious) return undefined
  const command: unknown[] = [op]
  for (let i = 0; i < form.length; i++) {
    const what = form[i]!
    const word: unknown = value[i + 1]
    const read =
      what === 'buffers'
        ? idsBelow(word, counts.buffers)
        : isBelow(word, what === 'event' ? limits.events : counts[`${what}s`])
          ? word
          : undefined
    if (read === undefined) return undefined
    command.push(read)
  }
  if (isPrevious) {
    if (value[3] !== -1) return undefined
    command.push(-1)
  }
  return command as unknown as Command
}

const readCommand = (r: Reader, value: unknown, at: string, counts: Counts): Command => {
  const words = r.list(value, at, 5)
  const op = words[0]
  if (typeof op !== 'string' || !Object.hasOwn(forms, op)) {
    r.fault(
      'BadCommand',
      at,
      show(op),
      `one of ${Object.keys(forms).join(', ')}`,
      show(op),
      'write a command of the format',
    )
    return ['free', 0]
  }
  const form = forms[op as Command[0]]
  const previous = op === 'wait' && words.length === 4
  if (words.length !== form.length + 1 && !previous) {
    r.fault(
      'BadCommand',
      at,
      op,
      `${form.length} operands: ${form.join(', ')}`,
      `${words.length - 1}`,
      `write ["${op}", ${form.join(', ')}]`,
    )
    return ['free', 0]
  }
  if (previous && words[3] !== -1)
    r.fault('BadCommand', `${at}[3]`, op, '-1, the tick before', show(words[3]), 'leave it out, or write -1')
  const command = [
    op,
    ...form.map((what, i) => {
      const word = words[i + 1]
      const where = `${at}[${i + 1}]`
      if (what === 'event') return r.integer(word, where, 0, limits.events - 1)
      if (what !== 'buffers') return r.id(word, where, counts[`${what}s`], what)
      return r
        .list(word, where, limits.accesses)
        .map((id, j) => r.id(id, `${where}[${j}]`, counts.buffers, 'buffer'))
    }),
    ...(previous ? [-1] : []),
  ]
  return command as unknown as Command
}

const checkViews = (r: Reader, plan: Plan): void => {
  plan.buffers.forEach(({ name }, b) => {
    for (const { wanted, found, next } of viewErrors(plan, b))
      r.fault('BadAlias', `buffers[${b}].alias`, `'${name}'`, wanted, found, next)
  })
}

/** Sums of sizes stay exact. */
const checkTotal = (r: Reader, plan: Plan): void => {
  let total = 0
  for (const buffer of plan.buffers) total += buffer.bytes + (buffer.offset ?? 0)
  if (total * plan.inFlight > limits.bytes) {
    r.fault(
      'OutOfRange',
      'plan.buffers',
      'bytes',
      `at most ${limits.bytes} in all, with their slots`,
      String(total * plan.inFlight),
      'no device has as much',
    )
  }
}

const checkExtents = (r: Reader, plan: Plan): void => {
  for (const access of outOfBounds(plan, limits.faults)) {
    const node = plan.nodes[access.node]!
    const subject = access.buffer < 0 ? `'${node.name}'` : `'${plan.buffers[access.buffer]!.name}'`
    r.fault(
      'Extent',
      `commands[${access.command}]`,
      subject,
      access.wanted,
      access.found,
      `correct the kernel of node ${access.node} ('${node.name}') or the buffer`,
    )
  }
}

const checkBytes = (r: Reader, plan: Plan): void => {
  for (const { tag, command, node, buffer, wanted, found, next } of byteFaults(runsOf(plan), limits.faults))
    r.fault(
      tag,
      `commands[${command}]`,
      `'${plan.buffers[buffer]!.name}'`,
      wanted,
      found,
      `${next}: node ${node} ('${plan.nodes[node]!.name}')`,
    )
}
