// What `planTree` and `launch` take from JavaScript, whose values may have any name and any form.
import { from, lastValueFrom, type Observable, of } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { add, BraidError, download, graph, mul, ring, tree, until, upload } from '../../../dsl/index.js'
import { drive, type PlanTree, planTree, TreeError } from '../../../runtime/index.js'
import { present } from '../devices.js'
import { affine, all, only, planned, row, treeOn } from './kit.js'

const inherited = ['toString', 'constructor', 'valueOf', 'hasOwnProperty', '__proto__', 'then', '0', '']

/** Names that are not known to types. */
interface Loose extends AsyncDisposable, Pick<PlanTree, 'stats'> {
  launch(plan: string, feeds?: object): LooseLaunch
}
interface LooseLaunch {
  readonly handles: Readonly<Record<string, { read(): Promise<Float32Array> }>>
  readonly values: Promise<Readonly<Record<string, Float32Array>>>
  next(plan: string, feeds?: object): LooseLaunch
}

const unshowable = new Proxy(
  {},
  {
    get: () => {
      throw new Error('mine')
    },
    getPrototypeOf: () => {
      throw new Error('mine')
    },
  },
)
const thrownBy = (run: () => unknown): unknown => {
  try {
    run()
    return 'nothing'
  } catch (error) {
    return error
  }
}

describe.each(present)('a plan tree on %s', device => {
  it.each(inherited)('has inputs, outputs and plans of the name %j', async name => {
    const body = planned(
      graph('body', { x: row, [name]: row } as { x: typeof row }, inputs => {
        const more = (inputs as Record<string, typeof inputs.x>)[name]!
        const outputs = { y: inputs.x.pipe(upload(), add(more.pipe(upload())), download()) }
        return Object.defineProperty(outputs, name, {
          value: inputs.x.pipe(upload(), mul(3), download()),
          enumerable: true,
        })
      }),
    )
    const plans = { first: body, second: body, ...{ [name]: affine('leaf', 'x', 'z', 2, 1) } }
    const spec = {
      plans,
      start: ['first', name],
      then: { first: ['second'] },
      keep: {},
    }
    await using t = (await treeOn(device, tree(spec as never) as never)) as unknown as Loose
    const one = t.launch('first', { x: all(1), [name]: all(2) })
    const two = one.next('second', { x: all(5) })
    const own = (values: object) => Object.getOwnPropertyDescriptor(values, name)!.value
    expect(only((await one.values)['y']!)).toBe(3)
    expect(Object.keys(one.handles)).toEqual([name])
    const values = await two.values
    expect(only(values['y']!)).toBe(8)
    expect(Object.keys(values).sort()).toEqual([name, 'y'].sort())
    expect(only(own(values))).toBe(15)
    expect(only((await t.launch(name, { x: all(4) }).values)['z']!)).toBe(9)
    // A value that is only inherited is none.
    expect(() => t.launch(name, Object.create({ x: all(4) }) as object)).toThrow(/none for x/)
    expect(Object.hasOwn(t.stats().alone, name)).toBe(true)
  })

  it('is no other value: the error says what of it is wrong', async () => {
    const plans = { first: affine('first', 'x', 'y', 2, 1) }
    const whole = tree({ plans, start: ['first'] })
    const wrong: readonly (readonly [unknown, string, RegExp])[] = [
      [undefined, 'tree', /an object with plans and start/],
      [null, 'tree', /an object with plans and start/],
      [[], 'tree', /an object with plans and start/],
      [{}, 'plans', /compiled plans by name/],
      [{ plans, start: ['first'] }, 'then', /by plan, a list/],
      [{ plans, start: ['first'], then: {} }, 'keep', /how long it stays/],
      [{ ...whole, start: 'first' }, 'start', /a list of names/],
      [{ ...whole, then: { first: 'first' } }, 'then.first', /a list of names/],
      [{ ...whole, keep: { first: { y: { lives: 'ring', count: 1e9 } } } }, 'keep.first.y', /1 to 64/],
      [{ ...whole, keep: { first: { y: { ...ring(2), count: 1.5 } } } }, 'keep.first.y', /1 to 64/],
      [{ ...whole, start: ['toString'] }, 'start', /one of the tree's plans/],
      [
        {
          ...whole,
          get then() {
            throw new Error('mine')
          },
        },
        'options',
        /can be read/,
      ],
    ]
    for (const [given, at, wanted] of wrong) {
      const opened = await planTree(given as never, { device })()
      expect(opened).toMatchObject({ _tag: 'Left', left: { at, wanted: expect.stringMatching(wanted) } })
    }
    const noArray = await planTree(whole, { device, params: { w: null } as never })()
    expect(noArray).toMatchObject({ _tag: 'Left', left: { found: expect.stringContaining('params.w') } })
  })

  it('is launched by a name: anything else is refused, and said', async () => {
    const spec = tree({ plans: { first: affine('first', 'x', 'y', 2, 1) }, start: ['first'] })
    await using t = await treeOn(device, spec)
    for (const [name, found] of [
      [undefined, /found {3}undefined/],
      [null, /found {3}null/],
      [5, /found {3}number 5/],
      ['constructor', /found {3}constructor/],
      [Object.create(null), /found {3}an object \(no prototype\)/],
      [Symbol('first'), /found {3}symbol Symbol\(first\)/],
      [unshowable, /found {3}a value that cannot be shown/],
    ] as const) {
      const { next } = t.launch('first', { x: all(1) })
      for (const launch of [t.launch.bind(t), next] as ((...args: never[]) => unknown)[]) {
        const error = thrownBy(() => launch(name as never, { x: all(1) } as never))
        expect(error).toBeInstanceOf(TreeError)
        expect(error).toMatchObject({
          _tag: 'NotASuccessor',
          message: expect.stringMatching(found),
          at: expect.stringMatching(/form\.test\.ts:\d+:\d+$/),
        })
      }
    }
    for (const layout of [1, -1, 'first', null, Object.create(null)])
      expect(thrownBy(() => t.explain(layout as never))).toMatchObject({
        _tag: 'UnknownLayout',
        at: expect.stringMatching(/form\.test\.ts:\d+:\d+$/),
        wanted: 'the number of a layout, of which there are 1',
        next: 'take the id of one of tree.layouts',
      })
  })

  it('is driven by decisions: what is none, or is refused, is an error at the line of drive', async () => {
    const first = affine('first', 'x', 'y', 2, 1)
    const spec = tree({ plans: { first, second: affine('second', 'y', 'z', 2, 1) }, start: ['first'] })
    await using t = await treeOn(device, spec)
    const decided = (decision: unknown) => of(decision) as Observable<never>
    const failed = (tree: unknown, decision: unknown): Promise<unknown> =>
      lastValueFrom(decided(decision).pipe(drive(tree as typeof t))).then(
        () => 'no error',
        error => error,
      )
    const good = { plan: 'first', feeds: { x: all(1) } }
    for (const [tree, decision, tag, text] of [
      [t, null, 'WrongValue', /the next plan and its inputs/],
      [t, undefined, 'WrongValue', /found {3}undefined/],
      [t, 'first', 'WrongValue', /the string "first"/],
      [t, {}, 'NotASuccessor', /found {3}undefined/],
      [t, { plan: 'second' }, 'NotASuccessor', /may begin with: first/],
      [t, { plan: Object.create(null) }, 'NotASuccessor', /an object \(no prototype\)/],
      [t, { plan: 'first', feeds: 5 }, 'WrongValue', /an object of values by name/],
      [t, { plan: 'first' }, 'WrongFeeds', /none for x/],
      [null, good, 'WrongValue', /an open tree/],
      [{}, good, 'WrongValue', /an open tree/],
    ] as const) {
      const error = await failed(tree, decision)
      expect(error).toBeInstanceOf(TreeError)
      expect(error).toMatchObject({
        _tag: tag,
        message: expect.stringMatching(text),
        at: expect.stringMatching(/form\.test\.ts:\d+:\d+$/),
      })
    }
    const seen = await lastValueFrom(decided(good).pipe(drive(t)))
    expect(only((seen.values as { readonly y: Float32Array }).y)).toBe(3)
  })

  it('is driven up to a decision that is refused: the values before it come first, nothing after it runs', async () => {
    const spec = tree({
      plans: { a: affine('a', 'x', 'y', 2, 1), b: affine('b', 'y', 'z', 10, 0) },
      start: ['a'],
      then: { a: ['b'] },
    })
    await using t = await treeOn(device, spec)
    const again = { plan: 'a', feeds: { x: all(1) } }
    const decisions = from([again, { plan: 'b' }, { plan: 'zzz' }, again]) as Observable<never>
    const seen: unknown[] = []
    await new Promise<void>(resolve =>
      decisions.pipe(drive(t)).subscribe({
        next: ({ plan, values }) => seen.push([plan, ...Object.values(values).map(value => only(value))]),
        error: (error: TreeError) => resolve(void seen.push(error._tag, error.found)),
      }),
    )
    expect(seen).toEqual([['a'], ['b', 30], 'NotASuccessor', 'zzz'])
    expect(t.stats().launches).toBe(2)
  })
})

describe('a description of a tree', () => {
  it('of another form is refused where it is made', () => {
    const plans = { double: affine('double', 'x', 'y', 2, 0) }
    const good = { plans, start: ['double'] }
    const wrong: readonly (readonly [() => unknown, subject: string, wanted: RegExp])[] = [
      ...['owned', 5, null, Object.create(null), { lives: 'zzz' }, { lives: 'ring' }, { lives: 'until' }].map(
        keep =>
          [
            () => tree({ ...good, keep: { double: { y: keep } } } as never),
            'tree: keep.double.y',
            /^until\(plan\), ring\(count\)/,
          ] as const,
      ),
      [() => tree(null as never), 'tree: its argument', /plans and start/],
      [() => tree({} as never), 'tree: plans', /compiled plans/],
      [() => tree({ plans: {} } as never), 'tree: start', /a list of names/],
      [() => tree({ ...good, start: 'double' } as never), 'tree: start', /a list of names/],
      [() => tree({ ...good, then: { double: 'last' } } as never), 'tree: then.double', /a list of names/],
      ...[0, 65, 1.5, '2', null, Object.create(null)].flatMap(count => [
        [() => ring(count as never), 'ring: count', /1 to 64/] as const,
        [() => until('double', count as never), 'until: count', /1 to 64/] as const,
      ]),
      [() => until(Object.create(null)), 'until: plan', /the name of a plan/],
    ]
    for (const [make, subject, wanted] of wrong) {
      const error = thrownBy(make)
      expect(error, subject).toBeInstanceOf(BraidError)
      expect(error).toMatchObject({
        ...{ _tag: 'BadArgument', subject },
        at: expect.stringMatching(/form\.test\.ts:\d+:\d+$/),
        wanted: expect.stringMatching(wanted),
        found: expect.stringMatching(/./),
        next: expect.stringMatching(/^write /),
      })
    }
  })
})
