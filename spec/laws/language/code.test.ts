// The code that `map` traces: equal instructions once, none that the result does not need.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type DeviceFlow, download, type Expression, graph, map, tensor, upload } from '../../../dsl/index.js'

type Instruction = readonly [string, ...number[]]

const x = { x: tensor('f32', [4]) }

const traced = (
  fn: (a: Expression) => Expression | number,
): { code: readonly Instruction[]; errors: number } => {
  const { ir } = graph(x, ({ x }) => ({
    y: (x.pipe(upload(), map(fn)) as DeviceFlow).pipe(download()),
  }))
  const attrs = ir.nodes.find(({ op }) => op === 'map')!.attrs as { code?: readonly Instruction[] }
  return { code: attrs.code ?? [], errors: ir.problems.length }
}

/** What a code computes of one number. */
const resultOf = (code: readonly Instruction[], given: number): number => {
  const values: number[] = []
  for (const [op, a, b] of code) {
    if (op === 'operand') values.push(given)
    else if (op === 'const') values.push(a!)
    else
      values.push(
        op === 'add'
          ? values[a!]! + values[b!]!
          : op === 'min'
            ? Math.min(values[a!]!, values[b!]!)
            : -values[a!]!,
      )
  }
  return values[values.length - 1]!
}

const steps = fc.array(
  fc.record({
    op: fc.constantFrom('add', 'min', 'neg'),
    a: fc.nat(1000),
    b: fc.oneof(fc.nat(1000), fc.constantFrom(-0, -1, -2)),
  }),
  { minLength: 1, maxLength: 120 },
)

describe('the code of a traced function', () => {
  it('computes what the function does, in distinct instructions that are all needed', () => {
    fc.assert(
      fc.property(steps, list => {
        const run = <A>(first: A, of: (op: string, a: A, b: A | number) => A): A => {
          const made = [first]
          for (const { op, a, b } of list) {
            const other = b < 0 || Object.is(b, -0) ? b : made[b % made.length]!
            made.push(of(op, made[a % made.length]!, other))
          }
          return made[made.length - 1]!
        }
        const { code, errors } = traced(a =>
          run(a, (op, a, b) => (op === 'add' ? a.add(b) : op === 'min' ? a.min(b) : a.neg())),
        )
        expect(errors).toBe(0)
        const direct = run(3, (op, a, b) => (op === 'add' ? a + b : op === 'min' ? Math.min(a, b) : -a))
        expect(resultOf(code, 3)).toBe(direct)
        const texts = code.map(([op, ...rest]) =>
          [op, ...rest.map(n => (Object.is(n, -0) ? '-0' : n))].join(),
        )
        expect(new Set(texts).size).toBe(code.length)
        const used = new Set(
          code.flatMap(([op, ...rest]) => (op === 'operand' || op === 'const' ? [] : rest)),
        )
        for (let at = 0; at < code.length - 1; at++) expect(used.has(at)).toBe(true)
      }),
    )
  })

  it('is one object for equal functions, and another where a constant is -0', () => {
    const of = (c: number) => traced(a => a.add(c)).code
    expect(of(0)).toBe(of(0))
    expect(of(0)).not.toBe(of(-0))
    expect(Object.is(of(-0)[1]![1], -0)).toBe(true)
  })

  it('takes no expression that outlived its own function', () => {
    let kept: Expression | undefined
    traced(a => (kept = a.add(1)))
    const within = kept!
    expect(traced(a => a.add(within)).errors).toBe(1)
    expect(traced(a => within.mul(a)).errors).toBe(1)
    // Nor does its use change what other functions make.
    for (let i = 0; i < 40; i++) within.add(i)
    expect(traced(a => a.add(2)).code).toEqual([
      ['operand', 0],
      ['const', 2],
      ['add', 0, 1],
    ])
  })

  it('of a function that traces another one is its own', () => {
    let inner: readonly Instruction[] = []
    const outer = traced(a => {
      const half = a.mul(0.5)
      inner = traced(b => b.add(7)).code
      return half.neg()
    })
    expect(inner).toEqual([
      ['operand', 0],
      ['const', 7],
      ['add', 0, 1],
    ])
    expect(outer.code).toEqual([
      ['operand', 0],
      ['const', 0.5],
      ['mul', 0, 1],
      ['neg', 2],
    ])
  })
})
