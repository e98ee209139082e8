import type {
  AttentionOperand,
  AttentionSpec,
  ConvDim,
  ConvSpec,
  CopySpec,
  CudaSpec,
  JoinSpec,
  KernelSpec,
  MapBinary,
  MapIndex,
  MapInstruction,
  MapOperand,
  MapSpec,
  MatmulEpilogue,
  MatmulOperand,
  MatmulSpec,
  ReduceSpec,
} from './kernel-spec.js'
import {
  attentionResults,
  canAppend,
  convOutput,
  mapBinary,
  mapRowReductions,
  mapUnary,
  mostAppended,
  mostSharing,
  mostSpatial,
  paddedOf,
} from './kernel-spec.js'
import { limits } from './limits.js'
import { hasRows, mapRows, mostPasses } from './map-rows.js'
import type { Reader } from './reader.js'
import { show } from './show.js'
import { type DType, dtypes, floatTypes } from './tensor.js'

const unary = [...mapUnary, ...mapRowReductions] as const
const integerMost = Number.MAX_SAFE_INTEGER
const gridMost = 2 ** 31 - 1

export const readDType = (r: Reader, value: unknown, at: string): DType => r.oneOf(value, at, dtypes)

type Get = (key: string) => unknown

/** Reads a size, which is from 1 on. */
const sizeOf = (r: Reader, get: Get, at: string) => (key: string) =>
  r.integer(get(key), `${at}.${key}`, 1, integerMost)

/** True, or absent. */
const readFlag = (r: Reader, value: unknown, at: string): boolean => {
  if (value !== undefined && value !== true) r.wrong(at, 'true, or nothing', value)
  return value === true
}

const readCopy = (r: Reader, get: Get, at: string): CopySpec => {
  const bytes = r.integer(get('bytes'), `${at}.bytes`, 1, integerMost)
  if (get('parts') === undefined) return { kind: 'copy', bytes }
  const parts = r.integer(get('parts'), `${at}.parts`, 1, limits.accesses)
  if (bytes % parts !== 0)
    r.fault(
      'BadKernel',
      `${at}.parts`,
      'parts',
      `a divisor of its ${bytes} bytes`,
      `${parts}`,
      'all parts are of one size',
    )
  return { kind: 'copy', bytes, parts }
}

const readReduce = (r: Reader, get: Get, at: string): ReduceSpec => {
  const size = sizeOf(r, get, at)
  const how = r.oneOf(get('how'), `${at}.how`, ['sum', 'mean', 'max', 'min', 'argmax', 'argmin'])
  const length = size('length')
  const count = get('count') === undefined ? undefined : size('count')
  const isPlace = how === 'argmax' || how === 'argmin'
  const most = isPlace ? length : 1
  if (count !== undefined && count > most)
    r.fault(
      'BadKernel',
      `${at}.count`,
      'count',
      `at most ${most}, for ${how} of ${length}`,
      `${count}`,
      'only argmax and argmin yield several positions, and at most one for each element',
    )
  return {
    kind: 'reduce',
    how,
    outer: size('outer'),
    length,
    inner: size('inner'),
    input: readDType(r, get('input'), `${at}.input`),
    output: isPlace
      ? r.oneOf(get('output'), `${at}.output`, ['i32'])
      : readDType(r, get('output'), `${at}.output`),
    ...(count === undefined ? {} : { count }),
  }
}

const readJoin = (r: Reader, get: Get, at: string): JoinSpec => {
  const size = sizeOf(r, get, at)
  const pieces = r.list(get('pieces'), `${at}.pieces`, limits.accesses).map((value, i) => {
    const where = `${at}.pieces[${i}]`
    const piece = r.object(value, where)
    const fill = r.field(piece, 'fill')
    return {
      length: r.integer(r.field(piece, 'length'), `${where}.length`, 1, integerMost),
      ...(fill === undefined ? {} : { fill: r.number(fill, `${where}.fill`) }),
    }
  })
  if (pieces.length === 0)
    r.fault('BadKernel', `${at}.pieces`, 'pieces', 'one piece or more', 'none', 'name what is joined')
  return {
    kind: 'join',
    outer: size('outer'),
    inner: size('inner'),
    dtype: readDType(r, get('dtype'), `${at}.dtype`),
    pieces,
  }
}

const readMap = (r: Reader, get: Get, at: string): MapSpec => {
  const shape = r
    .list(get('shape'), `${at}.shape`, limits.rank)
    .map((n, i) => r.integer(n, `${at}.shape[${i}]`, 1, integerMost))
  const given = r.list(get('operands'), `${at}.operands`, limits.accesses)
  const operands = given.map((value, i): MapOperand => {
    const where = `${at}.operands[${i}]`
    const operand = r.object(value, where)
    const strides = r.list(r.field(operand, 'strides'), `${where}.strides`, limits.rank)
    if (strides.length !== shape.length) {
      r.fault(
        'BadKernel',
        `${where}.strides`,
        'strides',
        `${shape.length} strides, one for each dimension`,
        `${strides.length}`,
        'give one for each dimension of the shape',
      )
    }
    return {
      dtype: readDType(r, r.field(operand, 'dtype'), `${where}.dtype`),
      offset: r.integer(r.field(operand, 'offset'), `${where}.offset`, 0, integerMost),
      strides: strides.map((n, d) => r.integer(n, `${where}.strides[${d}]`, -integerMost, integerMost)),
      ...readIndex(r, r.field(operand, 'indexed'), `${where}.indexed`, given.length),
    }
  })
  checkIndices(r, operands, at)
  const code = r.list(get('code'), `${at}.code`, limits.code)
  const before = r.faults.length
  const results = r.list(get('results'), `${at}.results`, limits.accesses).map((value, i) => {
    const where = `${at}.results[${i}]`
    const result = r.object(value, where)
    return {
      value: r.id(r.field(result, 'value'), `${where}.value`, code.length, 'value'),
      dtype: readDType(r, r.field(result, 'dtype'), `${where}.dtype`),
      ...(readFlag(r, r.field(result, 'row'), `${where}.row`) ? { row: true as const } : {}),
    }
  })
  const axis = readAxis(r, get('axis'), shape, `${at}.axis`)
  const spec: MapSpec = {
    kind: 'map',
    shape,
    ...(axis === undefined ? {} : { axis }),
    compute: r.oneOf(get('compute'), `${at}.compute`, ['f32', 'i32']),
    operands,
    code: code.map((value, j) =>
      readInstruction(r, value, `${at}.code[${j}]`, j, operands.length, shape.length),
    ),
    results,
  }
  // Of a result that was not read, 0 stands for its value.
  if (hasRows(spec)) checkRows(r, spec, at, r.faults.length === before)
  return spec
}

/** The dimension of rows that lie side by side: one that another one follows. */
const readAxis = (r: Reader, value: unknown, shape: readonly number[], at: string): number | undefined => {
  if (value === undefined) return undefined
  const axis = r.integer(value, at, 0, limits.rank - 2)
  if (axis < shape.length - 1) return axis
  const wanted = shape.length < 2 ? 'nothing' : `a dimension from 0 to ${shape.length - 2}`
  const next = 'name the dimension of the rows; the last one needs no name'
  r.fault('BadKernel', at, 'axis', `${wanted}, of a shape of ${shape.length} dimensions`, `${axis}`, next)
  return undefined
}

const readIndex = (
  r: Reader,
  value: unknown,
  at: string,
  operands: number,
): { readonly indexed?: MapIndex } => {
  if (value === undefined) return {}
  const index = r.object(value, at)
  return {
    indexed: {
      by: r.id(r.field(index, 'by'), `${at}.by`, operands, 'operand'),
      length: r.integer(r.field(index, 'length'), `${at}.length`, 1, integerMost),
      step: r.integer(r.field(index, 'step'), `${at}.step`, -integerMost, integerMost),
    },
  }
}

/** What an operand is indexed by is read as it lies, and as whole numbers. */
const checkIndices = (r: Reader, operands: readonly MapOperand[], at: string): void => {
  for (const [i, { indexed }] of operands.entries()) {
    const by = indexed && operands[indexed.by]
    if (by === undefined || (by.dtype === 'i32' && by.indexed === undefined)) continue
    r.fault(
      'BadKernel',
      `${at}.operands[${i}].indexed`,
      'by',
      'an operand of i32 that is not indexed',
      `operand ${indexed!.by}, of ${by.dtype}${by.indexed === undefined ? '' : ', which is indexed'}`,
      'name the operand that has the indices',
    )
  }
}

/** Rows need a dimension, few passes, and numbers a row where one is written. */
const checkRows = (r: Reader, spec: MapSpec, at: string, hasResults: boolean): void => {
  if (spec.shape.length === 0)
    r.fault('BadKernel', `${at}.shape`, 'shape', 'a dimension to reduce along', 'none', 'give rows a length')
  const { isRow, depth } = mapRows(spec)
  const passes = depth.reduce((most, each) => Math.max(most, each), 0)
  if (passes > mostPasses)
    r.fault(
      'BadKernel',
      `${at}.code`,
      'code',
      `at most ${mostPasses} reductions that follow from one another`,
      `${passes}`,
      'divide the kernel',
    )
  spec.results.forEach(({ value, row }, i) => {
    if (hasResults && row === true && isRow[value] === false)
      r.fault(
        'BadKernel',
        `${at}.results[${i}]`,
        'row',
        'a value that is one number a row',
        `value ${value}, which differs along the row`,
        'write it without row, or reduce it',
      )
  })
}

/** Instruction j: in single assignment, so its arguments are values below j. */
const readInstruction = (
  r: Reader,
  value: unknown,
  at: string,
  j: number,
  operands: number,
  rank: number,
): MapInstruction => {
  const words = r.list(value, at, 4)
  const op = words[0]
  const argument = (i: number) => r.id(words[i], `${at}[${i}]`, j, 'value')
  const arity = (count: number) => {
    if (words.length !== count + 1)
      r.fault(
        'BadKernel',
        at,
        String(op),
        `${count} arguments`,
        `${words.length - 1}`,
        `give '${op}' ${count}`,
      )
  }
  if (op === 'operand') {
    arity(1)
    return [op, r.id(words[1], `${at}[1]`, operands, 'operand')]
  }
  if (op === 'index') {
    arity(1)
    return [op, r.id(words[1], `${at}[1]`, rank, 'dimension')]
  }
  if (op === 'const') {
    arity(1)
    return [op, r.number(words[1], `${at}[1]`)]
  }
  if (op === 'select') {
    arity(3)
    return [op, argument(1), argument(2), argument(3)]
  }
  if (unary.includes(op as never)) {
    arity(1)
    return [op as (typeof unary)[number], argument(1)]
  }
  if (mapBinary.includes(op as never)) {
    arity(2)
    return [op as MapBinary, argument(1), argument(2)]
  }
  r.wrong(`${at}[0]`, 'an instruction of a map', op)
  return ['const', 0]
}

const readMatmul = (r: Reader, get: Get, at: string): MatmulSpec => {
  const size = sizeOf(r, get, at)
  const matrix = (key: string) => {
    const value = r.object(get(key), `${at}.${key}`)
    return {
      value,
      dtype: r.oneOf(r.field(value, 'dtype'), `${at}.${key}.dtype`, floatTypes),
      batchStride: r.integer(r.field(value, 'batchStride'), `${at}.${key}.batchStride`, 0, integerMost),
    }
  }
  const operand = (key: string, columns: number): MatmulOperand => {
    const { value, ...own } = matrix(key)
    const given = (name: string, least: number) => {
      const found = r.field(value, name)
      return found === undefined
        ? {}
        : { [name]: r.integer(found, `${at}.${key}.${name}`, least, integerMost) }
    }
    return { ...own, ...given('rowStride', columns), ...given('offset', 0) }
  }
  const [m, n, k] = [size('m'), size('n'), size('k')]
  const transposeA =
    get('transposeA') === undefined ? undefined : r.boolean(get('transposeA'), `${at}.transposeA`)
  const transposeB = r.boolean(get('transposeB'), `${at}.transposeB`)
  const batch = size('batch')
  const { value: _, ...c } = matrix('c')
  if (batch > 1 && c.batchStride < m * n)
    r.fault(
      'BadKernel',
      `${at}.c.batchStride`,
      'batchStride',
      `at least ${m * n}, the elements of a result`,
      `${c.batchStride}`,
      'the results of a batch must not overlap',
    )
  return {
    kind: 'matmul',
    m,
    n,
    k,
    batch,
    ...(transposeA === undefined ? {} : { transposeA }),
    transposeB,
    a: operand('a', transposeA ? m : k),
    b: operand('b', transposeB ? k : n),
    c,
    workspace: r.integer(get('workspace'), `${at}.workspace`, 0, integerMost),
    ...(get('epilogue') === undefined
      ? {}
      : { epilogue: readEpilogue(r, get('epilogue'), `${at}.epilogue`) }),
  }
}

const readEpilogue = (r: Reader, value: unknown, at: string): MatmulEpilogue => {
  const given = r.object(value, at)
  const get = (key: string) => r.field(given, key)
  const [bias, residual, auxiliary] = ['bias', 'residual', 'auxiliary'].map(key =>
    readFlag(r, get(key), `${at}.${key}`),
  )
  const activation =
    get('activation') === undefined
      ? undefined
      : r.oneOf(get('activation'), `${at}.activation`, ['relu', 'gelu'])
  if (activation !== undefined && residual)
    r.fault(
      'BadKernel',
      at,
      'residual',
      'an activation or a residual',
      'both',
      'add the residual by a kernel',
    )
  if (auxiliary && activation === undefined)
    r.fault(
      'BadKernel',
      at,
      'auxiliary',
      'an activation: the auxiliary output is the value that it is computed from',
      'none',
      'leave it out: c is that value',
    )
  return {
    ...(get('scale') === undefined ? {} : { scale: r.number(get('scale'), `${at}.scale`) }),
    ...(bias ? { bias } : {}),
    ...(activation === undefined ? {} : { activation }),
    ...(auxiliary ? { auxiliary } : {}),
    ...(residual ? { residual } : {}),
  }
}

const readAttention = (r: Reader, get: Get, at: string): AttentionSpec => {
  const size = sizeOf(r, get, at)
  const strides = (value: unknown, where: string, count: number): number[] => {
    const list = r.list(value, where, count)
    if (list.length !== count)
      r.fault('BadKernel', where, 'strides', `${count} strides`, `${list.length}`, 'give one a dimension')
    return Array.from({ length: count }, (_, d) => r.integer(list[d], `${where}[${d}]`, 0, integerMost))
  }
  const operand = (key: string): AttentionOperand => {
    const value = r.object(get(key), `${at}.${key}`)
    return {
      offset: r.integer(r.field(value, 'offset'), `${at}.${key}.offset`, 0, integerMost),
      strides: strides(r.field(value, 'strides'), `${at}.${key}.strides`, 3) as never,
    }
  }
  const masked = get('mask') === undefined ? undefined : r.object(get('mask'), `${at}.mask`)
  const [heads, groups] = [size('heads'), size('groups')]
  if (heads % groups !== 0)
    r.fault('BadKernel', `${at}.groups`, 'groups', `a divisor of ${heads} heads`, `${groups}`, 'share evenly')
  const appended = get('appended') === undefined ? undefined : size('appended')
  const result =
    get('result') === undefined ? undefined : r.oneOf(get('result'), `${at}.result`, attentionResults)
  const spec: AttentionSpec = {
    kind: 'attention',
    batch: size('batch'),
    heads,
    groups,
    queries: size('queries'),
    keys: r.integer(get('keys'), `${at}.keys`, 1, gridMost),
    size: size('size'),
    valueSize: size('valueSize'),
    causal: r.boolean(get('causal'), `${at}.causal`),
    scale: r.number(get('scale'), `${at}.scale`),
    dtype: r.oneOf(get('dtype'), `${at}.dtype`, floatTypes),
    q: operand('q'),
    k: operand('k'),
    v: operand('v'),
    y: operand('y'),
    ...(result === undefined ? {} : { result }),
    ...(result === undefined || result === 'logSumExp' ? {} : { dy: operand('dy') }),
    ...(readFlag(r, get('logs'), `${at}.logs`) ? { logs: true } : {}),
    ...(get('dv') === undefined ? {} : { dv: operand('dv') }),
    ...(masked === undefined
      ? {}
      : {
          mask: {
            dtype: r.oneOf(r.field(masked, 'dtype'), `${at}.mask.dtype`, ['u8', 'i32']),
            strides: strides(r.field(masked, 'strides'), `${at}.mask.strides`, 4) as never,
          },
        }),
    ...(readFlag(r, get('length'), `${at}.length`) ? { length: true } : {}),
    ...(appended === undefined ? {} : { appended }),
    ...(get('workspace') === undefined ? {} : { workspace: size('workspace') }),
  }
  const without = (key: 'appended' | 'workspace' | 'logs' | 'dv', what: string): void => {
    if (spec[key] !== undefined)
      r.fault('BadKernel', `${at}.${key}`, key, `none with ${what}`, show(spec[key]), 'leave it out')
  }
  if (result !== undefined)
    for (const key of ['appended', 'workspace', 'logs'] as const) without(key, `the result ${result}`)
  if (result !== 'byKeys') without('dv', `${result === undefined ? 'no' : 'another'} result than byKeys`)
  if (appended !== undefined) without('logs', 'appended')
  if (appended !== undefined && !canAppend(spec, appended))
    r.fault(
      'BadKernel',
      `${at}.appended`,
      'appended',
      `at most ${spec.keys} rows, ${mostSharing} queries that share keys, and ${mostAppended} elements a row`,
      `${appended} rows, ${(heads / groups) * spec.queries} queries, ${Math.max(spec.size, spec.valueSize)} elements`,
      'append by kernels of their own',
    )
  return spec
}

const readConv = (r: Reader, get: Get, at: string): ConvSpec => {
  const size = sizeOf(r, get, at)
  const given = r.list(get('spatial'), `${at}.spatial`, mostSpatial)
  if (given.length === 0) r.wrong(`${at}.spatial`, 'a list of one to three dimensions', given)
  const spatial = given.map((value, d) => readConvDim(r, value, `${at}.spatial[${d}]`))
  const channels = size('channels')
  const padded = paddedOf(channels, spatial)
  if (!(padded <= integerMost))
    r.fault(
      'BadKernel',
      `${at}.spatial`,
      'spatial',
      `at most ${integerMost} elements of a group with their padding`,
      `${padded}`,
      'pad less',
    )
  return {
    kind: 'conv',
    batch: size('batch'),
    groups: size('groups'),
    channels,
    filters: size('filters'),
    dtype: r.oneOf(get('dtype'), `${at}.dtype`, floatTypes),
    spatial,
    ...(readFlag(r, get('channelsLast'), `${at}.channelsLast`) ? { channelsLast: true as const } : {}),
    ...(get('workspace') === undefined ? {} : { workspace: size('workspace') }),
  }
}

const readConvDim = (r: Reader, value: unknown, at: string): ConvDim => {
  const given = r.object(value, at)
  const integer = (key: string, least: number) =>
    r.integer(r.field(given, key), `${at}.${key}`, least, integerMost)
  const dim: ConvDim = {
    input: integer('input', 1),
    kernel: integer('kernel', 1),
    stride: integer('stride', 1),
    dilation: integer('dilation', 1),
    before: integer('before', 0),
    after: integer('after', 0),
  }
  const [reach, padded] = [dim.dilation * (dim.kernel - 1) + 1, dim.before + dim.input + dim.after]
  if (!(padded <= integerMost) || !(reach <= integerMost) || convOutput(dim) < 1)
    r.fault(
      'BadKernel',
      `${at}.kernel`,
      'kernel',
      'a kernel that its padded input holds',
      `a kernel that spans ${reach} elements, of ${padded}`,
      'pad more, or take a smaller kernel or dilation',
    )
  return dim
}

const readCuda = (r: Reader, get: Get, at: string): CudaSpec => {
  const triple = (key: string): [number, number, number] => {
    const list = r.list(get(key), `${at}.${key}`, 3)
    if (list.length !== 3)
      r.fault('BadKernel', `${at}.${key}`, key, 'three numbers', `${list.length}`, 'give x, y and z')
    const part = (i: number) => r.integer(list[i], `${at}.${key}[${i}]`, 1, gridMost)
    return [part(0), part(1), part(2)]
  }
  const scalars = r.list(get('scalars'), `${at}.scalars`, limits.accesses).map((value, i) => {
    const where = `${at}.scalars[${i}]`
    const scalar = r.object(value, where)
    if (Object.hasOwn(scalar, 'i32') && Object.hasOwn(scalar, 'f32'))
      r.wrong(where, 'one of i32 and f32', value)
    if (Object.hasOwn(scalar, 'i32'))
      return { i32: r.integer(r.field(scalar, 'i32'), `${where}.i32`, -(2 ** 31), 2 ** 31 - 1) }
    return { f32: r.number(r.field(scalar, 'f32'), `${where}.f32`) }
  })
  const graph = get('graph') === undefined ? undefined : false
  if (graph === false && get('graph') !== false) r.wrong(`${at}.graph`, 'false, or nothing', get('graph'))
  return {
    kind: 'cuda',
    name: r.string(get('name'), `${at}.name`, limits.name),
    source: r.string(get('source'), `${at}.source`, limits.source),
    grid: triple('grid'),
    block: triple('block'),
    sharedBytes: r.integer(get('sharedBytes'), `${at}.sharedBytes`, 0, gridMost),
    scalars,
    ...(graph === undefined ? {} : { graph }),
  }
}

/** Lines of elements, and how many places of each line. */
const readLines = (r: Reader, get: Get, at: string) => {
  const size = sizeOf(r, get, at)
  return { outer: size('outer'), length: size('length'), inner: size('inner'), count: size('count') }
}

type Readers = {
  readonly [Kind in KernelSpec['kind']]: (
    r: Reader,
    get: Get,
    at: string,
  ) => Extract<KernelSpec, { readonly kind: Kind }>
}

const readers: Readers = {
  copy: readCopy,
  map: readMap,
  matmul: readMatmul,
  attention: readAttention,
  conv: readConv,
  reduce: readReduce,
  scan: (r, get, at) => {
    const size = sizeOf(r, get, at)
    return {
      kind: 'scan',
      outer: size('outer'),
      length: size('length'),
      inner: size('inner'),
      input: readDType(r, get('input'), `${at}.input`),
      output: readDType(r, get('output'), `${at}.output`),
    }
  },
  gather: (r, get, at) => ({
    kind: 'gather',
    ...readLines(r, get, at),
    dtype: readDType(r, get('dtype'), `${at}.dtype`),
    ...(readFlag(r, get('along'), `${at}.along`) ? { along: true } : {}),
  }),
  scatterAdd: (r, get, at) => ({
    kind: 'scatterAdd',
    ...readLines(r, get, at),
    input: readDType(r, get('input'), `${at}.input`),
    output: readDType(r, get('output'), `${at}.output`),
  }),
  append: (r, get, at) => ({
    kind: 'append',
    ...readLines(r, get, at),
    dtype: readDType(r, get('dtype'), `${at}.dtype`),
  }),
  join: readJoin,
  random: (r, get, at) => ({
    kind: 'random',
    count: sizeOf(r, get, at)('count'),
    seed: r.integer(get('seed'), `${at}.seed`, 0, integerMost),
    stream: r.integer(get('stream'), `${at}.stream`, 0, 255),
    dtype: r.oneOf(get('dtype'), `${at}.dtype`, [...floatTypes, 'i32']),
  }),
  cuda: readCuda,
}
const kinds = Object.keys(readers) as KernelSpec['kind'][]

/**
 * A kernel as data, by its own fields alone; whether it fits the buffers of its runs is checked in
 * extents.ts.
 */
export const readKernel = (r: Reader, value: unknown, at: string): KernelSpec => {
  const spec = r.object(value, at)
  const get = (key: string) => r.field(spec, key)
  return readers[r.oneOf(get('kind'), `${at}.kind`, kinds)](r, get, at)
}
