// What `planTree` and `launch` take from JavaScript, whose values may have any name and any form.
import { lastValueFrom, type Observable, of } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { add, download, graph, mul, ring, tree, upload } from '../../../dsl/index.js'
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
    ] as const) {
      expect(() => t.launch(name as never, { x: all(1) } as never)).toThrow(TreeError)
      expect(() => t.launch(name as never, { x: all(1) } as never)).toThrow(found)
    }
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
})
