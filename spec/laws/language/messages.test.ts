// What errors say: that they name the mistake, and what to do about it.
import { isLeft } from 'fp-ts/lib/Either.js'
import { lastValueFrom } from 'rxjs'
import { describe, expect, it } from 'vitest'
import {
  add,
  BraidError,
  type CompileError,
  compile,
  concat,
  type DeviceFlow,
  download,
  graph,
  interpret,
  param,
  scan,
  state,
  tensor,
  upload,
} from '../../../dsl/index.js'

const two = tensor('f32', [2])
const problemsOf = (body: (x: DeviceFlow<typeof two>) => unknown): readonly CompileError[] => {
  const made = graph('g', { x: two }, ({ x }) => ({
    y: (body(x.pipe(upload())) as DeviceFlow).pipe(download()),
  }))
  const compiled = compile(made)
  return isLeft(compiled) ? compiled.left : []
}

describe('an error says what was found and what to do', () => {
  it('of a parameter that interpret is not given', async () => {
    const made = graph({ x: two }, ({ x }) => ({
      y: x.pipe(upload(), add(param('weight', two)), download()),
    }))
    const given = (params: Readonly<Record<string, Float32Array>>) =>
      lastValueFrom(interpret(made, { params })({ x: [new Float32Array(2)] })).catch(
        (error: unknown) => error,
      )
    const error = await given({ wieght: new Float32Array(2) })
    expect(error).toBeInstanceOf(BraidError)
    expect((error as BraidError).faults[0]).toMatchObject({
      _tag: 'MissingParam',
      subject: 'weight',
      found: 'none, but wieght',
    })
    expect(((await given({})) as BraidError).faults[0]!.found).toBe('none')
  })

  it('of a parameter or a state that is declared outside of every body', () => {
    const outside = [() => param('w', two), () => state({ w: two }).w]
    for (const make of outside) {
      const w = make()
      const [error] = problemsOf(x => x.pipe(add(w)))
      expect(error).toMatchObject({
        _tag: 'ForeignFlow',
        found: 'a flow that was made outside of every body',
      })
      expect(error!.next).toMatch(/call them inside it, or in a function that the body calls/)
    }
  })

  it('of concat without a list, and beyond the largest size', () => {
    const found = (others: unknown) => problemsOf(x => x.pipe(concat(others as never, { axis: 0 })))[0]!.found
    expect(found([])).toBe('an empty one')
    expect(found(7)).toBe('7')
    expect(problemsOf(x => x.pipe(concat(x as never, { axis: 0 })))[0]!.found).toBe('one flow')
    const half = graph({ x: tensor('u8', [2 ** 52]) }, ({ x }) => {
      const flow = x.pipe(upload())
      return { y: flow.pipe(concat([flow], { axis: 0 }), download()) }
    })
    const large = compile(half)
    expect(isLeft(large) && large.left[0]).toMatchObject({
      _tag: 'BadDimension',
      wanted: 'dimensions below 2^53',
      next: 'make it smaller',
    })
  })

  it('of scan with a class', () => {
    expect(problemsOf(x => x.pipe(scan(class {} as never, 0)))).toMatchObject([
      { _tag: 'UnboundDelay', found: 'a class' },
    ])
  })
})
