// Plan trees beside the model of PyTorch's: the same random program drives both, which launches functions,
// keeps outputs or drops them, and begins iterations. What PyTorch does right, plan trees do too; where they
// differ, the model shows the behaviour of behaviours.ts that is marked as changed.
import { describe, expect, it } from 'vitest'
import { add, download, graph, ring, tree, upload } from '../../../dsl/index.js'
import { type Handle, type PlanTree, StaleHandleError } from '../../../runtime/index.js'
import { numbersFrom } from '../../fixtures/trees.js'
import { type Fn, PytorchTrees, type TorchTensor } from '../../oracle/pytorch-trees.js'
import { present } from '../devices.js'
import { all, copy, only, planned, row, treeOn } from './kit.js'

const names = ['a', 'b', 'c'] as const
type Name = (typeof names)[number]
const more = { a: 1, b: 10, c: 100 } as const

/** h ← h + more, and k = h + more + 1000; by PyTorch and by Braid. */
const torchFn = (id: Name): Fn => ({
  id,
  outputs: 2,
  scratch: 1,
  compute: ([h = 0]) => [h + more[id], h + more[id] + 1000],
})
const planOf = (id: Name) =>
  planned(
    graph(id, { h: row }, ({ h }) => {
      const next = h.pipe(upload(copy), add(more[id]))
      return { h: next.pipe(download(copy)), k: next.pipe(add(1000), download(copy)) }
    }),
  )

const spec = tree({
  plans: { a: planOf('a'), b: planOf('b'), c: planOf('c') },
  start: [...names],
  then: { a: names, b: names, c: names },
  // In PyTorch k is kept for as long as somebody holds it; of a's the newest two are kept here, of b's none.
  keep: { a: { k: ring(2) }, b: { k: { lives: 'run' } }, c: { k: { lives: 'run' } } },
})

/** One output, as both have it. */
interface Both {
  readonly torch: TorchTensor
  readonly braid: Handle
  readonly value: number
  readonly launch: number
}

/** How often the two have answered alike, and how they have differed. */
interface Seen {
  alike: number
  /** PyTorch shows another launch's value; the handle is refused. */
  silent: number
  /** PyTorch refuses the tensor; its bytes are still there. */
  sharper: number
  /** PyTorch keeps what somebody holds; the declared lifetime has ended. */
  declared: number
}

class Pair {
  readonly torch = new PytorchTrees()
  readonly seen: Seen = { alike: 0, silent: 0, sharper: 0, declared: 0 }
  private held: Both[] = []
  private last: Both | undefined
  private launches = 0
  /** By launch: the bytes that it wrote. */
  private readonly wrote: (readonly { readonly from: number; readonly to: number }[])[] = []

  constructor(private readonly braid: PlanTree) {}

  begin(): void {
    this.torch.nextIteration()
    this.braid.begin()
    this.last = undefined
  }

  async launch(name: Name, isFromHost: boolean, keeps: readonly boolean[]): Promise<void> {
    const input = isFromHost ? undefined : this.last
    const host = 5 * (this.launches % 3)
    const outputs = this.torch.run(torchFn(name), [input === undefined ? host : input.torch])
    const feeds = input === undefined ? { h: all(host) } : {}
    const layouts = this.braid.layouts.length
    const launched = this.braid.launch(name as never, feeds as never)
    expect(this.braid.layouts.length).toBe(layouts)
    const handles = launched.handles as unknown as Record<'h' | 'k', Handle>
    const values = torchFn(name).compute([input === undefined ? host : input.value])
    const launch = ++this.launches
    this.wrote.push(await this.clobbers(handles))
    const made = (['h', 'k'] as const).map(
      (output, i): Both => ({
        ...{ torch: outputs[i]!, braid: handles[output], value: values[i]!, launch },
      }),
    )
    for (const [i, both] of made.entries()) {
      expect(this.torch.read(both.torch)).toBe(values[i])
      expect(only(await both.braid.read())).toBe(values[i])
    }
    if (this.last !== undefined && !this.held.includes(this.last)) this.torch.drop(this.last.torch)
    this.last = made[0]
    if (keeps[0]) this.held.push(made[0]!)
    if (keeps[1]) this.held.push(made[1]!)
    else this.torch.drop(made[1]!.torch)
  }

  /** The bytes that the launch wrote, found by where its outputs lie. */
  private async clobbers({ h, k }: Record<'h' | 'k', Handle>) {
    const lane = this.braid.device.defaultLane
    const [at, beside] = await Promise.all([h, k].map(each => each.use(lane, ({ address }) => address)))
    this.base ??= at! - this.braid.layouts[0]!.outputs['h']!
    const found = this.braid.layouts.filter(
      ({ plan, outputs }) =>
        plan === h.plan && outputs['h'] === at! - this.base! && outputs['k'] === beside! - this.base!,
    )
    expect(found.length).toBeGreaterThan(0)
    return found.flatMap(({ clobbers }) => clobbers)
  }
  private base: number | undefined

  drop(at: number): void {
    const [both] = this.held.splice(at, 1)
    if (both === undefined) return
    both.braid[Symbol.dispose]()
    if (both !== this.last) this.torch.drop(both.torch)
  }

  get count(): number {
    return this.held.length
  }

  /** Asks both for everything that is held. */
  async look(): Promise<void> {
    for (const { torch, braid, value, launch } of this.held) {
      if (braid.disposed) continue
      const theirs = this.shown(torch)
      const written = this.wrote.slice(launch).flat()
      if (braid.stale) {
        expect(() => braid.read()).toThrow(StaleHandleError)
        // Nothing is refused whose bytes no launch has written.
        expect(written.length).toBeGreaterThan(0)
        if (theirs === 'overwritten') this.seen.alike++
        else if (theirs === value) this.seen.declared++
        else this.seen.silent++
      } else {
        expect(only(await braid.read())).toBe(value)
        if (theirs === value) this.seen.alike++
        else this.seen.sharper++
      }
    }
  }

  private shown(tensor: TorchTensor): number | 'overwritten' {
    try {
      return this.torch.read(tensor)
    } catch {
      return 'overwritten'
    }
  }
}

describe.each(present)("plan trees on %s beside PyTorch's", device => {
  it('give the same values, never another one, and record nothing again', async () => {
    const seen: Seen = { alike: 0, silent: 0, sharper: 0, declared: 0 }
    await using t = await treeOn(device, spec)
    await t.prepare()
    const { executables, layouts } = t.stats()
    let recordings = 0
    for (let seed = 1; seed <= 6; seed++) {
      const random = numbersFrom(seed)
      const pick = (most: number): number => Math.floor(random() * most)
      const pair = new Pair(t as unknown as PlanTree)
      // Iterations that come again and again, since PyTorch replays what it has met before.
      const iterations = [0, 1].map(() =>
        Array.from({ length: 1 + pick(3) }, (_, at) => ({
          name: names[pick(3)]!,
          isFromHost: at === 0 || pick(4) === 0,
          keeps: [pick(4) === 0, pick(3) === 0],
        })),
      )
      for (let i = 0; i < 9; i++) {
        pair.begin()
        for (const { name, isFromHost, keeps } of iterations[i < 5 ? 0 : pick(2)]!) {
          await pair.launch(name, isFromHost, keeps)
          if (pick(3) === 0) pair.drop(pick(pair.count + 1))
          if (pick(2) === 0) await pair.look()
        }
      }
      await pair.look()
      recordings += pair.torch.recordings
      for (const key of Object.keys(seen) as (keyof Seen)[]) seen[key] += pair.seen[key]
    }
    // 20 to 24, 27, 90: nothing grows with launches. PyTorch records for each path and each set of live
    // values.
    expect(t.stats()).toMatchObject({ layouts, executables: { made: executables.made, remade: 0 } })
    expect(recordings).toBeGreaterThan(0)
    // 40 and 26: the programs have come to the two changes, and to what is kept.
    for (const key of Object.keys(seen) as (keyof Seen)[]) expect(seen[key], key).toBeGreaterThan(0)
  })

  it('record three times where PyTorch records 4 · (2^k − 1) times', async () => {
    const stages = 2
    const named = ['root', 'b0', 'c0', 'meet0', 'b1', 'c1', 'meet1']
    const step = (id: string) =>
      planned(graph(id, { h: row }, ({ h }) => ({ h: h.pipe(upload(copy), add(1), download(copy)) })))
    const following: Record<string, readonly string[]> = {
      root: ['b0', 'c0'],
      b0: ['meet0'],
      c0: ['meet0'],
      meet0: ['b1', 'c1'],
      b1: ['meet1'],
      c1: ['meet1'],
    }
    const plans = Object.fromEntries(named.map(name => [name, step(name)]))
    const fan = tree({ plans, start: ['root'], then: following as never })
    await using t = (await treeOn(device, fan)) as unknown as PlanTree
    const torch = new PytorchTrees()
    const fnOf = (id: string): Fn => ({ id, outputs: 1, scratch: 0, compute: ([h = 0]) => [h + 1] })
    for (let round = 0; round < 3; round++)
      for (let choices = 0; choices < 2 ** stages; choices++) {
        torch.nextIteration()
        t.begin()
        const path = ['root']
        for (let k = 0; k < stages; k++) path.push(`${(choices >> k) & 1 ? 'b' : 'c'}${k}`, `meet${k}`)
        const held: TorchTensor[] = []
        let launched:
          | { readonly handles: Record<string, Handle>; readonly values: Promise<object> }
          | undefined
        for (const [i, name] of path.entries()) {
          held.push(...torch.run(fnOf(name), [held.at(-1) ?? 7]))
          launched = t.launch(name as never, (i === 0 ? { h: all(7) } : {}) as never) as never
        }
        const { h } = (await launched!.values) as { readonly h: Float32Array }
        expect(only(h)).toBe(torch.read(held.at(-1)!))
        for (const tensor of held) torch.drop(tensor)
      }
    expect(torch.recordings).toBe(1 + 4 * (2 ** stages - 1))
    expect(t.stats().executables).toMatchObject({ made: 1 + 3 * stages, remade: 0 })
  })
})
