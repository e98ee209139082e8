// Types that TypeScript writes into the declarations of a program that exports what it made: a graph, or an
// operator with its arguments, such as `export const head = matmul(w)`. `index.ts` exports all of them, `Device`
// by another name than the runtime's class.

export type { PortsOf } from './graph.js'
export type { ConvFits, Convolved } from './operators/conv.js'
export type { Indices } from './operators/gather.js'
export type { Norm } from './operators/layer-norm.js'
export type { MatmulFits, ProductShape } from './operators/matmul.js'
export type { SameShape } from './operators/softmax.js'
export type { HasNever, SpatialSizes } from './operators/spatial.js'
export type {
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
  SameDType,
  Shape,
  Unled,
} from './operators/types.js'
