import { nodeName, planName } from '../../ir/names.js'
import type { Plan } from '../../ir/plan.js'
import type { Held, HeldPart, Why } from '../../memory/held.js'
import { plural, sizeOf } from '../facts/names.js'
import type { Reasons } from '../facts/reasons.js'
import { type Line, section } from '../facts/section.js'

/** Lines grouped by heading, in order of first appearance. */
const grouped = <A>(items: readonly A[], heading: (item: A) => string, line: (item: A) => Line): Line[] => {
  const groups = new Map<string, Line[]>()
  for (const item of items) {
    const group = groups.get(heading(item))
    if (group === undefined) groups.set(heading(item), [line(item)])
    else group.push(line(item))
  }
  return [...groups].flatMap(([says, lines]) => [
    { says },
    ...lines.map(({ says, at }) => (at === undefined ? { says: `  ${says}` } : { says: `  ${says}`, at })),
  ])
}

/** `34 for data, 32 for memory`. */
const kindsOf = (waits: Reasons['waits']): string =>
  (['data', 'state', 'control', 'ranks', 'memory', 'order'] as const)
    .flatMap(kind => {
      const count = waits.filter(wait => wait.for === kind).length
      return count === 0 ? [] : [`${count} for ${kind}`]
    })
    .join(', ')

const times = (count: number): string =>
  count === 0 ? 'never waits' : count === 1 ? 'waits once a tick' : `waits ${count} times a tick`

const priorityOf = (priority: number): string =>
  priority === 0
    ? ''
    : priority > 0
      ? `, goes first (priority ${priority})`
      : `, goes last (priority ${priority})`

const laneLines = ({ lanes }: Reasons): Line[] => {
  const width = lanes.reduce((longest, { name }) => Math.max(longest, name.length), 0)
  return lanes.map(({ name, device, priority, runs, waits, because }) => {
    const where = lanes.some(lane => lane.device !== device) ? `, on device ${device}` : ''
    const why = because === '' ? '' : `: ${because}`
    const work = `${plural(runs, 'operation')}, ${times(waits)}`
    return { says: `${name.padEnd(width)}  ${work}${where}${priorityOf(priority)}${why}` }
  })
}

const windowLines = ({ choices }: Reasons): Line[] =>
  choices.windows.flatMap(({ lane, ahead, uploads, at, because }) => {
    const when =
      ahead === 0 ? 'each right before its reader' : `at most ${ahead} ahead of the one that is read`
    return [
      { says: `${lane}: ${listOf(uploads)}: ${when}, so ${ahead + 1} in memory`, at },
      { says: `${' '.repeat(lane.length)}  ${because}` },
    ]
  })

const listOf = (names: readonly string[]): string =>
  names.length <= 4
    ? names.join(', ')
    : `${names.slice(0, 2).join(', ')} … ${names[names.length - 1]} (${names.length})`

const waitLines = ({ waits }: Reasons): Line[] => {
  const kind = waits.reduce((longest, wait) => Math.max(longest, wait.for.length), 0)
  return grouped(
    waits,
    ({ lane }) => `${lane} goes on with`,
    ({ for: why, before, beforeLane, after, because, at }) => {
      const on = beforeLane === '' ? '' : ` on ${beforeLane}`
      return { says: `${why.padEnd(kind)}  ${after}, after ${before}${on}: ${because}`, at }
    },
  )
}

const fusionLines = ({ choices: { fusion } }: Reasons): Line[] => {
  if (fusion === undefined) return []
  return [
    ...fusion.kernels.map(({ name, members, at }) => ({ says: `${name}: ${listOf(members)}`, at })),
    ...fusion.apart.map(({ name, reader, because, at }) => ({
      says: `${name} is stored for ${reader}: ${because}`,
      at,
    })),
  ]
}

const graphLines = ({ graphs: made }: Reasons): Line[] => {
  if (made === undefined) return []
  const { graphs, eager, ticks, devices: over } = made
  return [
    ...graphs.flatMap(({ nodes, edges, lane, others, devices, ends, at }, g) => {
      const where = devices.length > 1 ? `, on devices ${listOf(devices.map(String))}` : ''
      const beside = `${others.length === 0 ? '' : ` with work of ${listOf(others)}`}${where}`
      const says = `graph ${g}  ${plural(nodes, 'operation')}, ${plural(edges, 'edge')}: launched on ${lane}`
      return [
        { says: `${says}${beside}` },
        ...(ends === '' ? [] : [{ says: `  ends before ${ends}`, ...(at === '' ? {} : { at }) }]),
      ]
    }),
    ...eager.map(({ name, because, at }) => ({
      says: `eager    ${name}${because === '' ? '' : `: ${because}`}`,
      ...(at === '' ? {} : { at }),
    })),
    { says: `ticks    ${ticks}` },
    ...(over === '' ? [] : [{ says: `devices  ${over}` }]),
  ]
}

const useLines = ({ uses }: Reasons): Line[] =>
  grouped(
    uses,
    ({ home }) => `${home} may give away again`,
    ({ buffer, lane, access, at }) => ({ says: `${buffer}, when ${lane} is past ${access}`, at }),
  )

const elidedWaitLines = ({ elidedWaits }: Reasons): Line[] =>
  elidedWaits.map(({ before, after, by, at }) => ({ says: `${after} after ${before}: ${by}`, at }))

const elidedUseLines = ({ elidedUses }: Reasons): Line[] =>
  elidedUses.map(({ buffer, home, lane, access, by, at }) => ({
    says: `${buffer} of ${home}: ${lane} is done with it after ${access}: ${by}`,
    at,
  }))

const meaning: Readonly<Record<Why, string>> = {
  lasting: 'lives on across ticks',
  slots: 'inputs and outputs',
  used: 'in use',
  kept: 'held by a window',
  waiting: 'freed, but not yet to be had',
  free: 'free',
  rest: 'not told apart',
}

/** More parts than this that differ only in name share a line. */
const few = 4

const heldLines = ({ parts }: Held): Line[] => {
  const alike = new Map<string, HeldPart[]>()
  for (const part of parts) {
    const key = `${part.why} ${part.bytes} ${part.because}`
    const group = alike.get(key)
    if (group === undefined) alike.set(key, [part])
    else group.push(part)
  }
  const shown = [...alike.values()].flatMap(group =>
    group.length > few ? [group] : group.map(part => [part]),
  )
  const sizes = shown.map(group => (group.length === 1 ? '' : `${group.length} × `) + sizeOf(group[0]!.bytes))
  const width = sizes.reduce((longest, size) => Math.max(longest, size.length), 0)
  const sums = new Map<Why, number>()
  for (const { why, bytes } of parts) sums.set(why, (sums.get(why) ?? 0) + bytes)
  return grouped(
    shown.map((group, i) => ({ group, size: sizes[i]! })),
    ({ group: [part] }) => {
      const { why, bytes } = part!
      return sums.get(why) === bytes ? meaning[why] : `${meaning[why]}, ${sizeOf(sums.get(why)!)} in all`
    },
    ({ group, size }) => {
      const { name, because } = group[0]!
      const says = name === '' ? because : `${listOf(group.map(part => part.name))}: ${because}`
      return { says: `${size.padStart(width)}  ${says}` }
    },
  )
}

/** The user's operation at which the peak is reached. */
const reachedAt = (plan: Plan, { command }: Held): string => {
  const at = plan.commands[command]
  if (at === undefined) return 'at any time'
  const next = plan.commands.slice(command).find(other => other[0] === 'run')
  const node = next?.[0] === 'run' ? plan.nodes[next[1]] : undefined
  return node === undefined ? 'at the end of the tick' : `right before ${nodeName(plan, node.id)}`
}

const heldSections = (plan: Plan, { held }: Reasons): string[] =>
  held.flatMap(memory => {
    const { space, device, bytes } = memory
    const where =
      space === 'pinned' ? 'pinned memory' : plan.devices > 1 ? `memory of device ${device}` : 'device memory'
    const bound = space === 'pinned' ? plan.bound.pinned : (plan.bound.device[device] ?? 0)
    const more =
      space === 'device' && bound > bytes
        ? "; the session's pool gives out whole granules in one piece, " +
          `and needs ${sizeOf(bound - bytes)} more for that`
        : ''
    return section(
      `in ${where} at the peak (${sizeOf(bytes)})`,
      `${reachedAt(plan, memory)}${more}`,
      heldLines(memory),
    )
  })

const memoryReuseLines = ({ takeovers }: Reasons): Line[] =>
  grouped(
    takeovers,
    ({ buffer, offset, bytes }) => `${buffer}, ${sizeOf(bytes)} from byte ${offset} on, has those of`,
    ({ from, ticksAgo, after, because }) => ({
      says: `${from}${ticksAgo === 0 ? '' : ' of the tick before'}, after ${after}: ${because}`,
    }),
  )

const kindText = ({ boundKind }: Plan): string =>
  boundKind === 'exact'
    ? ', exact: no tick takes more'
    : boundKind === 'enforced'
      ? ', enforced: each tick begins, on the device, after the end of the tick before'
      : ''

/** The whole explanation. `timing`: the lines about the prediction for a machine. */
export const textOf = (plan: Plan, reasons: Reasons, timing: readonly string[]): string => {
  const { waits, uses, elidedWaits, elidedUses, choices, takeovers } = reasons
  const devices = plan.bound.device.map(sizeOf).join(', ')
  const work = `${plural(plan.nodes.length, 'operation')} on ${plural(plan.lanes.length, 'lane')}`
  const windows = choices.windows.some(({ gathers }) => gathers) ? 'uploads and gathers' : 'uploads'
  return `${[
    `${planName(plan)}: ${work}, ${plural(plan.inFlight, 'tick')} in flight`,
    `bound: ${devices} of device memory, ${sizeOf(plan.bound.pinned)} of pinned memory${kindText(plan)}`,
    ...(reasons.mode === undefined ? [] : ['', `mode ${reasons.mode}`]),
    ...(reasons.graphs === undefined
      ? []
      : section(
          `graphs (${reasons.graphs.graphs.length})`,
          'each is launched as one piece of the lane of its first operation; waits inside are its edges',
          graphLines(reasons),
        )),
    ...section('lanes', 'each is a CUDA stream, and does its operations in order', laneLines(reasons)),
    ...(choices.order === ''
      ? []
      : ['', `order: ${choices.order}`, ...choices.others.map(other => `  not ${other}`)]),
    ...(choices.windows.length === 0
      ? []
      : section('windows', `${windows} that run ahead`, windowLines(reasons))),
    ...(choices.changes === undefined
      ? []
      : section(
          `what is changed (${choices.changes.length})`,
          'in its own memory where nothing reads the value before later in the program',
          choices.changes,
        )),
    ...(choices.parts === undefined
      ? []
      : section(
          'in parts',
          choices.parts.says,
          choices.parts.lines.map(({ name, parts, at }) => ({ says: `${name}: ${parts} parts`, at })),
        )),
    ...(choices.fusion === undefined ? [] : section('fused', choices.fusion.says, fusionLines(reasons))),
    ...timing,
    ...heldSections(plan, reasons),
    ...(plan.storage === 'planned'
      ? section(
          `bytes that are taken over (${takeovers.length})`,
          'each buffer has its place in the arena, and so have those before it',
          memoryReuseLines(reasons),
        )
      : []),
    ...section(
      `waits (${waits.length})`,
      `${kindsOf(waits)}; a lane goes on only when another has come so far`,
      waitLines(reasons),
    ),
    ...section(
      `uses (${uses.length})`,
      "where another lane than a buffer's home is done with it, so that its bytes can be given away",
      useLines(reasons),
    ),
    ...section(
      `dependencies that need no wait of their own (${elidedWaits.length})`,
      'each is ordered already',
      elidedWaitLines(reasons),
    ),
    ...section(
      `uses that are not needed (${elidedUses.length})`,
      'the home lane is after that access anyway',
      elidedUseLines(reasons),
    ),
  ].join('\n')}\n`
}
