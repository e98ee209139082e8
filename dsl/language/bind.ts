import type { CompileError, GraphIR, GraphNode } from '../ir/graph.js'
import { joinNames } from '../ir/names.js'
import { show } from '../ir/show.js'
import { type BoundSpec, type Dim, showSpec, type TensorSpec } from '../ir/tensor.js'

/** A shape with every symbol bound. A symbol without a size is an error of the graph, told before: 1 here. */
export const bindShape = (shape: readonly Dim[], dims: Readonly<Record<string, number>>): number[] =>
  shape.map(size => (typeof size === 'number' ? size : Object.hasOwn(dims, size) ? dims[size]! : 1))

/** One error for each symbol of the graph that `dims` gives no size, at the first node that has it. */
export const unboundSymbols = (
  ir: GraphIR,
  dims: Readonly<Record<string, unknown>>,
): readonly CompileError[] => {
  const seen = new Map<string, GraphNode>()
  for (const node of ir.nodes)
    for (const size of node.spec.shape)
      if (typeof size === 'string' && !Object.hasOwn(dims, size) && !seen.has(size)) seen.set(size, node)
  return [...seen].map(([symbol, { at, name, spec }]) => ({
    _tag: 'UnboundSymbol',
    at: at.toString(),
    subject: name,
    wanted: `a size for the symbol ${symbol} of ${showSpec(spec)}`,
    found: Object.keys(dims).length === 0 ? 'no dims' : `sizes of ${joinNames(Object.keys(dims), 8)}`,
    next:
      `write compile(graph, { dims: { ${symbol}: … } }); ` +
      'interpret and the options of a program take dims as well',
  }))
}

/** A node's spec with every symbol bound. */
export const bindSpec = (node: GraphNode, dims: Readonly<Record<string, number>>): BoundSpec => ({
  dtype: node.spec.dtype,
  shape: bindShape(node.spec.shape, dims),
})

/** The errors of the option `dims`: an invalid size, or a symbol that the graph does not have. */
export const checkDims = (ir: GraphIR, dims: Readonly<Record<string, unknown>>): readonly CompileError[] => {
  const symbols = new Set<string>()
  for (const { spec } of ir.nodes)
    for (const size of spec.shape) if (typeof size === 'string') symbols.add(size)
  return Object.entries(dims).flatMap(([symbol, size]): CompileError[] => {
    const wanted = symbols.has(symbol)
      ? 'a whole number from 0'
      : `a symbol of the graph: ${[...symbols].join(', ') || 'it has none'}`
    const known = symbols.has(symbol) && Number.isSafeInteger(size) && (size as number) >= 0
    return known
      ? []
      : [
          {
            _tag: 'BadOption',
            at: `dims.${symbol}`,
            subject: ir.name,
            wanted,
            found: show(size),
            next: 'correct the option dims',
          },
        ]
  })
}

/** Dims as a caller writes them: `{ batch: 10 }`. */
export const showDims = (dims: Readonly<Record<string, number | '…'>>): string =>
  `{ ${Object.entries(dims)
    .map(([name, size]) => `${name}: ${size}`)
    .join(', ')} }`

/**
 * The one symbol of a shape, and its size, with which a value would have `count` elements while the other
 * symbols keep their sizes. Undefined where no symbol fits, or several do.
 */
export const fittingDim = (
  written: TensorSpec,
  bound: readonly number[],
  count: number,
): Readonly<Record<string, number>> | undefined => {
  const fitting = [...new Set(written.shape.filter(dim => typeof dim === 'string'))].flatMap(symbol => {
    const times = written.shape.filter(dim => dim === symbol).length
    const others = bound.reduce(
      (product, size, axis) => (written.shape[axis] === symbol ? product : product * size),
      1,
    )
    const size = Math.round((count / others) ** (1 / times))
    return size >= 1 && size ** times * others === count ? [{ [symbol]: size }] : []
  })
  return fitting.length === 1 ? fitting[0] : undefined
}
