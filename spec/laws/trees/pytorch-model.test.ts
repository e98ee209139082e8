// The model of PyTorch's trees that plan trees are compared with, held to what PyTorch's own tests say of it.
// The numbers are those of spec/conformance/trees/behaviours.ts.
import { describe, expect, it } from 'vitest'
import { type Fn, PytorchTrees, type TorchTensor } from '../../oracle/pytorch-trees.js'

const fn = (id: string, outputs = 1, scratch = 0): Fn => ({
  id,
  outputs,
  scratch,
  compute: inputs => Array.from({ length: outputs }, (_, i) => (inputs[0] ?? 0) * 2 + i),
})
const recordingsOf = (of: PytorchTrees['roots']): number =>
  [...of.values()].flat().reduce((sum, { children }) => sum + 1 + recordingsOf(children), 0)

describe('the model of graph trees', () => {
  it('2, 3 warms up, records, then replays, for each shape', () => {
    const torch = new PytorchTrees()
    for (const shape of ['f of 2', 'f of 3'])
      for (let i = 0; i < 3; i++) {
        torch.nextIteration()
        for (const tensor of torch.run(fn(shape), [1])) torch.drop(tensor)
      }
    expect(torch.ran).toEqual(['warmup', 'record', 'replay', 'warmup', 'record', 'replay'])
  })

  it('5 a chain whose values are alive is one root with descendants', () => {
    const torch = new PytorchTrees()
    const chain = [fn('a'), fn('b'), fn('c')]
    for (let i = 0; i < 4; i++) {
      torch.nextIteration()
      let last: readonly (number | TorchTensor)[] = [1]
      const held: TorchTensor[] = []
      for (const each of chain) {
        const made = torch.run(each, last)
        held.push(...made)
        last = made
      }
      expect(torch.read(held[2]!)).toBe(8)
      for (const tensor of held) torch.drop(tensor)
    }
    expect([...torch.roots.keys()]).toEqual(['a'])
    expect(recordingsOf(torch.roots)).toBe(3)
    expect(torch.ran.slice(-3)).toEqual(['replay', 'replay', 'replay'])
  })

  it('6 a path whose outputs are dead ends: the next function is a root', () => {
    const torch = new PytorchTrees()
    for (let i = 0; i < 3; i++) {
      torch.nextIteration()
      for (const id of ['a', 'b']) for (const tensor of torch.run(fn(id), [1])) torch.drop(tensor)
    }
    expect([...torch.roots.keys()].sort()).toEqual(['a', 'b'])
    expect(recordingsOf(torch.roots)).toBe(2)
  })

  it('7 a branch that comes late restores the allocator twice: to warm up, and to record', () => {
    const torch = new PytorchTrees()
    const run = (second: string): void => {
      torch.nextIteration()
      const a = torch.run(fn('a'), [1])
      const b = torch.run(fn(second), a)
      for (const tensor of [...a, ...b]) torch.drop(tensor)
    }
    for (let i = 0; i < 4; i++) run('x')
    expect(torch.checkpoints).toBe(0)
    for (let i = 0; i < 4; i++) run('y')
    expect(torch.checkpoints).toBe(2)
    expect(torch.live).toBe(0)
  })

  it('24, 25, 26 a value that lives longer than when it was recorded makes a sibling; one that dies earlier does not', () => {
    const torch = new PytorchTrees()
    const run = (keeps: boolean): void => {
      torch.nextIteration()
      const [y, y2] = torch.run(fn('a', 2), [1])
      if (!keeps) torch.drop(y2!)
      for (const tensor of torch.run(fn('b'), [y!])) torch.drop(tensor)
      torch.drop(y!)
      if (keeps) torch.drop(y2!)
    }
    for (let i = 0; i < 3; i++) run(false)
    const before = torch.recordings
    run(true)
    expect(torch.recordings).toBe(before + 1)
    for (const keeps of [true, false, true]) run(keeps)
    expect(torch.recordings).toBe(before + 1)

    const other = new PytorchTrees()
    const both = (keeps: boolean): void => {
      other.nextIteration()
      const [y, y2] = other.run(fn('a', 2), [1])
      if (!keeps) other.drop(y2!)
      for (const tensor of other.run(fn('b'), [y!])) other.drop(tensor)
      other.drop(y!)
      if (keeps) other.drop(y2!)
    }
    for (let i = 0; i < 3; i++) both(true)
    expect(other.recordings).toBe(2)
    both(false)
    expect(other.recordings).toBe(2)
  })

  it('38, 39, 40 an overwritten output is an error after a warm-up and a recording, and new data after a replay', () => {
    const torch = new PytorchTrees()
    const made = [1, 2, 3, 4].map(value => {
      torch.nextIteration()
      return torch.run(fn('f'), [value])[0]!
    })
    expect(torch.ran).toEqual(['warmup', 'record', 'replay', 'replay'])
    expect(() => torch.read(made[0]!)).toThrow('overwritten')
    expect(() => torch.read(made[1]!)).toThrow('overwritten')
    expect(torch.read(made[2]!)).toBe(8)
    expect(made[2]).toBe(made[3])
  })

  it('k choices between two functions that meet again are 4 · (2^k − 1) recordings, and the root', () => {
    for (const stages of [1, 2, 4]) {
      const torch = new PytorchTrees()
      const walk = (choices: number): void => {
        torch.nextIteration()
        const held: TorchTensor[] = []
        let last: readonly (number | TorchTensor)[] = [1]
        const step = (id: string): void => {
          last = torch.run(fn(id), last)
          held.push(...(last as readonly TorchTensor[]))
        }
        step('root')
        for (let k = 0; k < stages; k++) {
          step(`${(choices >> k) & 1 ? 'b' : 'c'}${k}`)
          step(`meet${k}`)
        }
        for (const tensor of held) torch.drop(tensor)
      }
      for (let round = 0; round < 3; round++)
        for (let choices = 0; choices < 2 ** stages; choices++) walk(choices)
      expect(torch.recordings).toBe(1 + 4 * (2 ** stages - 1))
    }
  })
})
