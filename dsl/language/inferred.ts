// Types that TypeScript writes into the declarations of a program that exports what it made: a graph, or an
// operator with its arguments, such as `export const head = matmul(w)`. `index.ts` exports all of them, `Device`
// by another name than the runtime's class.

export type { PortsOf } from './graph.js'
export type { Joined } from './operators/concat.js'
export type { ConvFits, Convolved } from './operators/conv.js'
export type { Indices } from './operators/gather.js'
export type { Norm } from './operators/layer-norm.js'
export type { LinearFits, LinearShape } from './operators/linear.js'
export type { MatmulFits, ProductShape } from './operators/matmul.js'
export type { Padded } from './operators/pad.js'
export type { Sliced } from './operators/slice.js'
export type { SameShape } from './operators/softmax.js'
export type { HasNever, SpatialSizes } from './operators/spatial.js'
export type { Divided } from './operators/split.js'
export type {
  AxesFrom0,
  Broadcast,
  Broadcasts,
  Device,
  Floats,
  Invalid,
  Led,
  LedBy,
  Reduced,
  ReducedWhole,
  Replaced,
  Resized,
  SameDType,
  Shape,
  SizeOf,
  Unled,
} from './operators/types.js'
