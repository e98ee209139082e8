import type { Plan } from './plan.js'

/** The names of the fields of a value, and of those in it at any depth. */
type Names<Value> = Value extends readonly (infer Entry)[]
  ? Names<Entry>
  : Value extends object
    ? (keyof Value & string) | Names<Value[keyof Value]>
    : never

type Inner = Names<Plan[keyof Plan]>

// The order of fields in the objects of a plan.
const listed = [
  'kind',
  'id',
  'op',
  'name',
  'value',
  'dtype',
  'device',
  'pinned',
  'priority',
  'groups',
  'size',
  'bytes',
  'space',
  'home',
  'life',
  'alias',
  'aliasOffset',
  'offset',
  'strides',
  'at',
  'kernel',
  'collective',
  'communicator',
  'count',
  'peerAccess',
  'donates',
  'after',
  'flops',
  'movedBytes',
  'shape',
  'init',
  'rate',
  'parts',
  'compute',
  'operands',
  'code',
  'results',
  'm',
  'n',
  'k',
  'batch',
  'transposeA',
  'transposeB',
  'a',
  'b',
  'c',
  'batchStride',
  'rowStride',
  'workspace',
  'epilogue',
  'scale',
  'bias',
  'activation',
  'auxiliary',
  'residual',
  'heads',
  'queries',
  'keys',
  'valueSize',
  'causal',
  'q',
  'v',
  'y',
  'result',
  'dy',
  'logs',
  'dv',
  'mask',
  'how',
  'root',
  'peer',
  'pairs',
  'outer',
  'length',
  'appended',
  'inner',
  'input',
  'output',
  'channels',
  'filters',
  'spatial',
  'channelsLast',
  'stride',
  'dilation',
  'before',
  'source',
  'grid',
  'block',
  'sharedBytes',
  'scalars',
  'graph',
  'along',
  'pieces',
  'fill',
  'row',
  'axis',
  'indexed',
  'by',
  'step',
  'seed',
  'stream',
  'i32',
  'f32',
  'from',
  'to',
  'edges',
] as const satisfies readonly Inner[]

// A field that is not listed would be missing in every text: it does not compile.
const order: Inner extends (typeof listed)[number] ? typeof listed : never = listed

/**
 * JSON has no names for three numbers, and JSON.stringify loses the sign of zero: a kernel's constants need
 * all four.
 */
const numberText = (value: number): string => {
  if (Object.is(value, -0)) return '-0'
  return Number.isFinite(value) ? String(value) : `"${value}"`
}

/**
 * For JSON.stringify of what is compared and never read again: JSON writes NaN and the infinities as null and
 * -0 as 0, and kernels that differ in them must not become one.
 */
export const exactNumbers = (_key: string, value: unknown): unknown =>
  typeof value === 'number' && (!Number.isFinite(value) || Object.is(value, -0))
    ? `number ${Object.is(value, -0) ? '-0' : value}`
    : value

const encode = (value: unknown): string => {
  if (typeof value === 'number') return numberText(value)
  if (Array.isArray(value)) return `[${value.map(encode).join(', ')}]`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null'
  const fields = value as Record<string, unknown>
  const present = order.filter(key => Object.hasOwn(fields, key) && fields[key] !== undefined)
  return `{ ${present.map(key => `"${key}": ${encode(fields[key])}`).join(', ')} }`
}

/** The least characters of a part, except the last one. */
const together = 2 ** 20

function* lines(list: readonly unknown[]): Generator<string> {
  if (list.length === 0) {
    yield '[]'
    return
  }
  let text = '['
  for (let i = 0; i < list.length; i++) {
    text += `${i === 0 ? '' : ','}\n    ${encode(list[i])}`
    if (text.length < together) continue
    yield text
    text = ''
  }
  yield `${text}\n  ]`
}

// The fields of a plan in their order: on one line, or an entry of the list a line.
const forms: Readonly<Record<keyof Plan, 'line' | 'lines'>> = {
  plan: 'line',
  name: 'line',
  devices: 'line',
  inFlight: 'line',
  storage: 'line',
  bound: 'line',
  boundKind: 'line',
  arena: 'line',
  arenas: 'line',
  tolerance: 'line',
  communicators: 'lines',
  lanes: 'lines',
  buffers: 'lines',
  nodes: 'lines',
  commands: 'lines',
  graphs: 'lines',
}

/** `toJSON` in parts, in order: as one text a plan of a million nodes is longer than a string can be. */
export function* jsonParts(plan: Plan): Generator<string> {
  let before = '{\n'
  for (const key of Object.keys(forms) as (keyof Plan)[]) {
    const value: unknown = plan[key]
    if (value === undefined) continue
    yield `${before}  "${key}": `
    if (forms[key] === 'lines') yield* lines(value as readonly unknown[])
    else yield encode(value)
    before = ',\n'
  }
  yield '\n}\n'
}

/**
 * A plan in the public format `plan: 1`. Canonical: equal plans give equal texts, since the order of fields
 * is fixed. One lane, buffer, node or command a line, so that a diff is readable. Throws a RangeError where
 * the text is longer than a string can be: see `jsonParts`.
 */
export const toJSON = (plan: Plan): string => Array.from(jsonParts(plan)).join('')
