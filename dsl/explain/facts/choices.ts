import type { Change, CopiedFor, Evaluation, Operation, WhySeparate } from '../../compiler/analysis/ir.js'
import {
  type Decisions,
  type Fusion,
  type LaneOrigin,
  type OwnKernel,
  provenanceOf,
  type WhyStored,
} from '../../compiler/analysis/provenance.js'
import { joinNames } from '../../ir/names.js'
import type { Plan } from '../../ir/plan.js'
import { plural, sizeOf, timeOf } from './names.js'

/** The uploads or gathers of one lane, of which at most `ahead` are issued before the one that is read. */
export interface Window {
  readonly lane: string
  readonly ahead: number
  readonly uploads: readonly string[]
  /** Whether they are collectives rather than uploads. */
  readonly gathers: boolean
  readonly at: string
  /** Whether the compiler chose it; else the program set it. */
  readonly automatic: boolean
  readonly because: string
}

/**
 * The compiler's choices that a plan does not record: the origin of each lane, the order, the windows. Empty
 * for a plan that this process did not compile.
 */
export interface Choices {
  /** By lane of the plan: why its operations are on it. */
  readonly lanes: readonly string[]
  readonly order: string
  /** Orders that were rejected, each with the reason. */
  readonly others: readonly string[]
  readonly windows: readonly Window[]
  /**
   * Of each state, and of each kernel that changes a value: whether that is done in its memory, and why not.
   */
  readonly changes?: readonly { readonly says: string; readonly at: string }[]
  /** Reductions of few long lines that are done in parts; absent where there are none. */
  readonly parts?: InParts
  /**
   * Which operations are one kernel, and why other values are stored; absent where there is nothing of
   * either.
   */
  readonly fusion?: Fused
}

export interface InParts {
  /** In one sentence, with what is predicted. */
  readonly says: string
  readonly lines: readonly { readonly name: string; readonly parts: number; readonly at: string }[]
}

export interface Fused {
  /** In one sentence, with what was given up. */
  readonly says: string
  readonly kernels: readonly {
    readonly name: string
    readonly members: readonly string[]
    readonly at: string
  }[]
  /** Values that one kernel makes and another one reads. */
  readonly apart: readonly {
    readonly name: string
    readonly reader: string
    readonly because: string
    readonly at: string
  }[]
}

const none: Choices = { lanes: [], order: '', others: [], windows: [] }

const ownKernels: Readonly<Record<OwnKernel, string>> = {
  product: 'a product',
  attention: 'attention',
  convolution: 'a convolution',
  'running sum': 'a running sum',
  'rows of one': 'a reduction of rows of one element',
  largest: 'a search for the largest or smallest of a row or column',
  append: 'a write of rows into another value',
  concatenation: 'a concatenation',
  'random numbers': 'random numbers',
  indices: 'a value made of indices of which f32 would round some',
  'kernel of the program': 'a kernel that the program has written',
}

const whyStored = (because: WhyStored): string => {
  const [side, own] = because.split(': ') as ['made by' | 'read by', OwnKernel | undefined]
  if (own === undefined) return whyApart[because as keyof typeof whyApart]
  return side === 'made by'
    ? `it is ${ownKernels[own]}: a kernel of its own, which computes nothing else`
    : `its reader is ${ownKernels[own]}: a kernel of its own, which reads memory`
}

const whyApart: Readonly<Record<Exclude<WhyStored, `${string}: ${OwnKernel}`>, string>> = {
  'view of a product': 'a view of the product is read, and its kernel computes what reads the product itself',
  'another product': 'its reader is computed by the kernel of another product',
  'another size': 'its reader computes more or fewer elements than the product has',
  'waits for others': 'the product would wait for another value that its reader reads',
  'after a residual': 'nothing that follows the residual is computed by the kernel of a product',
  'after an activation': 'nothing that follows the activation is computed by the kernel of a product',
  'late cast': 'the kernel of a product casts before the bias and the activation, not after them',
  'late scale': 'the kernel of a product scales before it adds the bias, not after that',
  'two scales': 'two scales in one would round f32 once in place of twice',
  'scale of 0': 'by a scale of 0 the product would not be computed, and lose its NaNs',
  'another type': 'the kernel of a product computes in one element type, which is that of its operands',
  'neither bias nor residual': 'what is added is neither a row of the product nor as large as the product',
  'no such function': 'the kernel of a product does not compute this function of this type',
  keep: 'it is kept in memory by keep()',
  after: 'after() orders its readers, or others after it',
  window: 'it is an element of a window, which is one value in memory',
  'changed memory': 'another kernel changes the memory that is read, so that the order of the two is kept',
  indexed: 'its reader takes elements of it by their indices',
  'worse plan': 'with one kernel for both the plan would be worse',
  'read by several': 'what reads it is not in one kernel',
  'another lane': 'its reader is on another lane',
  'another device': 'its reader is on another device',
  'another rate': 'its reader comes at another rate, or at another instant of the tick',
  'whole numbers and floats': 'one of the two computes with whole numbers, the other with floats',
  'order of elements': 'its reader reads elements in an order that is not a stride of this kernel',
  'other rows': 'its reader reduces along another axis, or rows of another length',
  'too large': 'one kernel would have too many instructions, operands or dimensions',
  longer: 'one kernel would take longer than two',
  memory: 'what it is made of would be held for longer',
}

const whyCopied: Readonly<Record<CopiedFor, string>> = {
  'later reader': 'reads the value before later',
  'read twice': 'the kernel reads it as its rows too',
  output: 'it is an output, or goes to another device',
  state: 'the value before is the next value of a state',
  'not a value of the tick': 'no single kernel of the tick makes it',
  donations: 'a donated value is read later in the program',
  'order of elements': 'the kernel reads the value before in another order of elements',
  'reduced rows': 'the kernel writes a number of each row, and may read one after it has written some',
}

const separately: Readonly<Record<WhySeparate, string>> = {
  'keys or values alone': 'not both its keys and its values are appended to',
  'other rows': 'keys and values have another number of rows, or another position',
  'many queries': 'its kernel appends only where few queries share keys, and rows are short',
  'other layout': 'it reads keys or values in another layout than they are appended in, or a view of them',
  'ordered by after': 'after() orders one of them',
  'another lane': 'it is on another lane, or another device',
  'one memory': 'keys, values or what is appended lie in one memory',
  'touched between':
    'another operation reads or writes the value, or changes the rows or their position, before it',
  'far apart': 'too many operations stand between them',
  donations: 'a donated value is read later in the program',
}

const changesOf = (changes: readonly Change[]): NonNullable<Choices['changes']> =>
  changes.map(({ name, of, at, state, copied, reader = '', by, whySeparate }) => {
    const kernel = by === undefined ? '' : `, in the kernel of ${by}`
    const why = copied === undefined ? '' : `: ${reader} ${whyCopied[copied]}`.replace(':  ', ': ')
    const says =
      state === undefined
        ? `${name} changes ${copied === undefined ? `${of} in place` : `a copy of ${of}`}${kernel}`
        : `the next ${of} is ${copied === undefined ? `made in place by ${name}` : `a copy of ${name}`}`
    const alone =
      whySeparate === undefined
        ? ''
        : `; no part of the kernel of ${whySeparate.reader}: ${separately[whySeparate.because]}`
    return { says: `${says}${why}${alone}`, at: String(at) }
  })

const efforts: Readonly<Record<Fusion['effort'], string>> = {
  wide: 'wherever one kernel takes no longer than two',
  several: 'wherever one kernel takes no longer than two, but for kernels that only read the same',
  free: 'of one result each, wherever one kernel takes no longer than two',
  lean: 'only what surely costs no memory and no time',
  none: 'nothing, since it would make the plan worse',
}

/** Whether the graph has nothing that could be one kernel. */
const isNothing = ({ kernels, apart, rejected }: Fusion): boolean =>
  kernels === 0 && apart.length === 0 && rejected.length === 0

const partsOf = ({ lines, ticks }: NonNullable<Decisions['parts']>): InParts => {
  const us = (nanoseconds: number) => timeOf(nanoseconds / 1e3)
  const figures =
    ticks === undefined
      ? ''
      : `: a tick of ${us(ticks.parts)} by the machine's figures, ${us(ticks.whole)} as wholes`
  return {
    says: `long rows and columns, too few to fill the device${figures}`,
    lines: lines.map(({ at, ...rest }) => ({ ...rest, at: String(at) })),
  }
}

const fusionOf = (
  { effort, kernels, regions, apart, rejected }: Fusion,
  changes: readonly Change[],
): Fused => {
  // Attention that writes the appended rows is of one kernel with the append since later.
  const joined = new Set(changes.map(({ name, by }) => `${name} ${by}`))
  const given = rejected.map(why => `; fusing more was given up: ${why}`).join('')
  const many = `${plural(kernels, 'kernel')} of several operations, ${efforts[effort]}`
  const none = effort === 'none' ? efforts.none : 'nothing'
  return {
    says: `${kernels === 0 ? none : many}${given}`,
    kernels: regions.map(({ at, ...rest }) => ({ ...rest, at: String(at) })),
    apart: apart
      .filter(({ name, reader }) => !joined.has(`${name} ${reader}`))
      .map(({ because, at, ...names }) => ({ ...names, because: whyStored(because), at: String(at) })),
  }
}

const wants: Readonly<Record<Operation['kind'], string>> = {
  upload: 'copies in run beside arithmetic, on an engine of their own',
  download: 'copies out run beside arithmetic and beside copies in, on an engine of their own',
  store: 'what keeps a state follows what makes it',
  compute: 'arithmetic without a lane of its own',
  peer: 'copies from other devices',
  collective: 'collectives run beside arithmetic and beside copies',
}

/** Why work without a lane of its own is on as many lanes as it is. */
const spreadOf = ({ lanesTried: tried, choice }: Decisions, lanes: number): string => {
  if (choice?.chosen.spread === 1) return 'all of it on one lane, which holds least'
  const us = (nanoseconds: number) => timeOf(nanoseconds / 1e3)
  const looked = new Map(tried.map(each => [each.lanes, each.tick]))
  const own = looked.get(lanes)
  if (own === undefined || looked.size < 2) return ''
  const others = [...looked].filter(([count]) => count !== lanes).sort(([a], [b]) => a - b)
  const says = others.map(([count, tick]) => `${us(tick)} with ${count}`)
  const predicted = `a tick of ${us(own)} by the machine's figures`
  return `${plural(lanes, 'lane')} for such work: ${predicted}; ${joinNames(says)}`
}

const isWork = ({ chosen }: LaneOrigin): boolean => chosen.includes('compute') || chosen.includes('store')

/** By lane: which lanes of the program it stands for, or for what kind of work the compiler chose it. */
const lanesOf = (decisions: Decisions): string[] => {
  const { lanes, mostLanes } = decisions
  const working = lanes.filter(isWork)
  return lanes.map(lane => {
    const names = lane.named
    const named =
      names.length > 1
        ? [`lanes ${joinNames(names)} of the program share it, since there are to be ${mostLanes} at most`]
        : names.length === 1
          ? ['named in the program']
          : []
    const spread = lane === working[0] ? spreadOf(decisions, working.length) : ''
    return [
      ...named,
      ...(lane.chosen.length === 0 ? [] : [`chosen: ${lane.chosen.map(kind => wants[kind]).join('; ')}`]),
      ...(spread === '' ? [] : [spread]),
    ].join('; ')
  })
}

const windowsOf = ({ windows, memory, keepsWindows, choice }: Decisions): Window[] => {
  const suits = typeof memory === 'number' ? `fits ${sizeOf(memory)}` : 'holds least'
  return windows.map(({ lane, asked, ahead, operations, gathers, at }) => {
    const leaves = keepsWindows
      ? `what each leaves is freed for the next ${
          gathers ? 'gather' : 'upload'
        } of its lane, or at the end of the tick`
      : 'what each leaves is freed at its last read'
    const automatic =
      choice?.chosen.windows.some(window => window.lane === lane && window.ahead === ahead) === true
    const why = automatic
      ? `chosen, since it ${suits}; ${leaves}`
      : ahead < asked
        ? `the program asks for ${asked}, of which this ${suits}; ${leaves}`
        : leaves
    const place = at === 'unknown' ? '' : at
    return { lane, ahead, uploads: operations, gathers, at: place, automatic, because: why }
  })
}

const by: Readonly<Record<Evaluation['by'], string>> = {
  'critical path': 'what other lanes wait for the longest goes first',
  time: 'the most urgent of what could start goes first, as lanes become idle',
  program: 'as the program has it',
}

const describe = ({ by: order, spread, ahead, windows }: Evaluation): string =>
  [
    by[order],
    ...(spread === 1 ? ['work without a lane on one'] : []),
    ...(ahead === 0 ? ['nothing ahead'] : Number.isFinite(ahead) ? [`nothing more than ${ahead} ahead`] : []),
    ...windows.map(window =>
      window.ahead === 0 ? `${window.lane} never ahead` : `${window.lane} ${window.ahead} ahead`,
    ),
  ].join(', ')

const figuresOf = ({ tick, bound }: Evaluation): string => {
  const predicted = Number.isFinite(tick) ? `a tick of ${timeOf(tick / 1e3)} by the machine's figures, ` : ''
  return predicted + sizeOf(bound)
}

/** The most rejected orders that are listed. */
const most = 6

const orderOf = ({ choice, memory }: Decisions): Pick<Choices, 'order' | 'others'> => {
  if (choice === undefined) return { order: '', others: [] }
  const { chosen, tried } = choice
  const against = ({ tick, bound }: Evaluation): string =>
    typeof memory === 'number' && bound > memory
      ? `${sizeOf(bound - memory)} too many`
      : memory === 'small' || bound > chosen.bound
        ? `${sizeOf(bound)}${Number.isFinite(tick) ? `, a tick of ${timeOf(tick / 1e3)}` : ''}`
        : `a tick of ${timeOf(tick / 1e3)}`
  const order = describe(chosen)
  // Of candidates with the same description keep the one with the lowest bound.
  const least = new Map<string, Evaluation>()
  for (const other of tried) {
    const name = describe(other)
    const known = least.get(name)
    if (known === undefined || other.bound < known.bound) least.set(name, other)
  }
  least.delete(order)
  return {
    order: `${order}; ${figuresOf(chosen)}`,
    others: [...least].slice(0, most).map(([name, other]) => `${name}: ${against(other)}`),
  }
}

/** The compiler's decisions for a plan, in sentences; none for a plan that this process did not compile. */
export const choicesOf = (plan: Plan): Choices => {
  const decisions = provenanceOf(plan)?.decisions
  if (decisions === undefined) return none
  const { fusion, parts, changes } = decisions
  return {
    lanes: lanesOf(decisions),
    ...orderOf(decisions),
    windows: windowsOf(decisions),
    ...(changes.length === 0 ? {} : { changes: changesOf(changes) }),
    ...(parts === undefined ? {} : { parts: partsOf(parts) }),
    ...(fusion === undefined || isNothing(fusion) ? {} : { fusion: fusionOf(fusion, changes) }),
  }
}
