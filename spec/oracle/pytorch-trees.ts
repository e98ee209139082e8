// PyTorch's CUDA graph trees as a small state machine, of one device and of inference: what runs, what is
// recorded, which outputs are alive, and what a tensor shows that the caller still holds. It shares no code
// with plan trees. After cudagraph_trees.py of PyTorch 2.11; the letters T, G and the numbers of checks are
// those of the test's titles.

/** A function as the trees see it: how many outputs it has, and how much memory it takes while it runs. */
export interface Fn {
  readonly id: string
  readonly outputs: number
  readonly scratch: number
  compute(inputs: readonly number[]): readonly number[]
}

type State = 'none' | 'warmup' | 'recording' | 'execution'

/** The memory of one output, of one unit. `owned`: the allocator knows that it is taken. */
interface Storage {
  readonly address: number
  owned: boolean
  poisoned: boolean
  holders: number
}

/** What a caller holds: an output of a launch. A replay hands out the same object as the one before. */
export class TorchTensor {
  constructor(readonly storage: Storage) {}
}

interface Path {
  readonly fn: string
  readonly parent: Path | undefined
  /**
   * The tensors of its latest run; those of a recording are kept, so that the next replay hands them out
   * again.
   */
  outputs: TorchTensor[]
  readonly children: Map<string, Recording[]>
}

interface Recording extends Path {
  readonly addresses: readonly number[]
  readonly scratch: readonly number[]
  /** By input: the address of the path's output that it was; undefined: copied in. */
  readonly managed: readonly (number | undefined)[]
  /**
   * Outputs of the path that had died between the parent's recording and this one: the memory was used again.
   */
  readonly deadBefore: readonly (readonly [Path, number])[]
  /** Outputs of the path that were alive after it. */
  readonly aliveAfter: readonly (readonly [Path, number])[]
}

export type Ran = 'warmup' | 'record' | 'replay'

const overwritten = 'overwritten by a subsequent run'
const garbage = Number.NaN

export class PytorchTrees {
  /** What ran, in order. */
  readonly ran: Ran[] = []
  recordings = 0
  checkpoints = 0
  readonly roots = new Map<string, Recording[]>()
  private readonly memory = new Map<number, number>()
  private readonly warmed = new Set<string>()
  private readonly held = new Set<Storage>()
  private state: State = 'none'
  private current: Path | undefined
  private generation = 0
  private currentGeneration = -1

  /** Marks the beginning of an iteration: outputs of those before may be overwritten (G9). */
  nextIteration(): void {
    this.generation++
  }

  hold(tensor: TorchTensor): TorchTensor {
    tensor.storage.holders++
    this.held.add(tensor.storage)
    return tensor
  }
  drop({ storage }: TorchTensor): void {
    if (--storage.holders === 0) this.held.delete(storage)
  }

  /** What a tensor shows, or throws. */
  read({ storage }: TorchTensor): number {
    if (storage.poisoned) throw new Error(`accessing tensor output that has been ${overwritten}`)
    return this.memory.get(storage.address)!
  }

  /** How many units of the pool belong to outputs that are held. */
  get live(): number {
    return this.held.size
  }

  /** Runs a function on values of the host and on outputs; the caller holds each of its outputs once. */
  run(fn: Fn, inputs: readonly (number | TorchTensor)[]): readonly TorchTensor[] {
    const values = inputs.map(input => (input instanceof TorchTensor ? this.read(input) : input))
    const outputs = this.dispatch(fn, inputs, fn.compute(values))
    return outputs.map(tensor => this.hold(tensor))
  }

  // ---- the order of 1.2 -----------------------------------------------------------------------------------

  private dispatch(
    fn: Fn,
    inputs: readonly (number | TorchTensor)[],
    results: readonly number[],
  ): TorchTensor[] {
    if (this.state === 'recording' || this.state === 'warmup') this.tryEnd()
    if (!this.warmed.has(fn.id) || this.state === 'warmup') {
      if (this.state === 'execution') this.checkpoint()
      return this.warmUp(fn, results)
    }
    if (this.state !== 'recording') {
      const siblings = (this.current?.children ?? this.roots).get(fn.id) ?? []
      const found = siblings.find(sibling => this.matches(sibling, inputs))
      if (found !== undefined) return this.replay(found, results)
    }
    // Known at the root: a path that may end does, and the search begins again there.
    if (this.current !== undefined && this.roots.has(fn.id)) {
      this.tryEndExecution()
      if (this.current === undefined) return this.dispatch(fn, inputs, results)
    }
    this.tryEndExecution()
    if (this.current !== undefined && this.state === 'execution') this.checkpoint()
    return this.record(fn, inputs, results)
  }

  private isAlive([{ outputs }, at]: readonly [Path, number]): boolean {
    return outputs[at] !== undefined && outputs[at].storage.holders > 0
  }

  private path(): readonly Path[] {
    const found: Path[] = []
    for (let at = this.current; at !== undefined; at = at.parent) found.unshift(at)
    return found
  }

  private outputsOfPath(): readonly (readonly [Path, number])[] {
    return this.path().flatMap(path => path.outputs.map((_, at) => [path, at] as const))
  }

  private alive(): readonly (readonly [Path, number])[] {
    return this.outputsOfPath().filter(output => this.isAlive(output))
  }

  private mayEnd(): 'new generation' | 'all dead' | undefined {
    if (this.current === undefined) return undefined
    if (this.currentGeneration !== this.generation) return 'new generation'
    return this.alive().length === 0 ? 'all dead' : undefined
  }

  /** T4, T5, T7, T8: at a new generation every output that is alive is poisoned and freed. */
  private tryEnd(): void {
    const why = this.mayEnd()
    if (why === undefined) return
    for (const [path, at] of why === 'new generation' ? this.alive() : []) {
      const { storage } = path.outputs[at]!
      storage.poisoned = true
      storage.owned = false
    }
    this.forget()
  }

  /** T12: the path ends, and nobody is told. */
  private tryEndExecution(): void {
    if (this.state === 'execution' && this.mayEnd() !== undefined) this.forget()
  }

  private forget(): void {
    this.current = undefined
    this.state = 'none'
  }

  /** The allocator learns what the replays have made: outputs that are alive are its own from now on. */
  private checkpoint(): void {
    this.checkpoints++
    for (const { outputs } of this.path()) for (const { storage } of outputs) storage.owned = true
    this.state = 'recording'
  }

  private allocate(units: number): number[] {
    const taken = new Set([...this.held].filter(({ owned }) => owned).map(({ address }) => address))
    const found: number[] = []
    for (let address = 0; found.length < units; address++)
      if (!taken.has(address)) {
        found.push(address)
        taken.add(address)
      }
    return found
  }

  private write(scratch: readonly number[], addresses: readonly number[], results: readonly number[]): void {
    for (const address of scratch) this.memory.set(address, garbage)
    for (const [i, address] of addresses.entries()) this.memory.set(address, results[i]!)
  }

  private made(address: number, owned: boolean): TorchTensor {
    return new TorchTensor({ address, owned, poisoned: false, holders: 0 })
  }

  private entered(path: Path, state: State, ran: Ran): TorchTensor[] {
    this.current = path
    this.state = state
    this.currentGeneration = this.generation
    this.ran.push(ran)
    return path.outputs
  }

  private warmUp(fn: Fn, results: readonly number[]): TorchTensor[] {
    this.warmed.add(fn.id)
    const units = this.allocate(fn.outputs + fn.scratch)
    const addresses = units.slice(0, fn.outputs)
    this.write(units.slice(fn.outputs), addresses, results)
    const outputs = addresses.map(address => this.made(address, true))
    return this.entered({ fn: fn.id, parent: this.current, outputs, children: new Map() }, 'warmup', 'warmup')
  }

  private record(
    fn: Fn,
    inputs: readonly (number | TorchTensor)[],
    results: readonly number[],
  ): TorchTensor[] {
    const ofPath = this.outputsOfPath()
    const managed = inputs.map(input =>
      input instanceof TorchTensor &&
      ofPath.some(([path, at]) => path.outputs[at]!.storage.address === input.storage.address)
        ? input.storage.address
        : undefined,
    )
    const before = (this.current as Partial<Recording> | undefined)?.aliveAfter ?? []
    const deadBefore = before.filter(output => !this.isAlive(output))
    const staged = inputs.length - managed.filter(address => address !== undefined).length
    const units = this.allocate(fn.outputs + fn.scratch + staged)
    const addresses = units.slice(0, fn.outputs)
    const scratch = units.slice(fn.outputs)
    this.write(scratch, addresses, results)
    const outputs = addresses.map(address => this.made(address, true))
    const recording = {
      ...{ fn: fn.id, parent: this.current, outputs, addresses, scratch, managed, deadBefore },
      children: new Map<string, Recording[]>(),
      aliveAfter: [] as (readonly [Path, number])[],
    }
    const siblings = this.current?.children ?? this.roots
    siblings.set(fn.id, [...(siblings.get(fn.id) ?? []), recording])
    this.recordings++
    recording.aliveAfter.push(...this.alive(), ...addresses.map((_, at) => [recording, at] as const))
    return this.entered(recording, 'recording', 'record')
  }

  /** Checks 1 and 2: where the path's outputs lie, and that what had died then is dead now. */
  private matches({ managed, deadBefore }: Recording, inputs: readonly (number | TorchTensor)[]): boolean {
    const isThere = managed.every((address, i) => {
      const input = inputs[i]
      return address === undefined || (input instanceof TorchTensor && input.storage.address === address)
    })
    return isThere && deadBefore.every(output => !this.isAlive(output))
  }

  /**
   * The outputs are the same objects as at the last replay, unless a checkpoint was in between: whoever held
   * one of them sees the new value.
   */
  private replay(recording: Recording, results: readonly number[]): TorchTensor[] {
    this.write(recording.scratch, recording.addresses, results)
    recording.outputs = recording.addresses.map((address, at) => {
      const known = recording.outputs[at]!
      return known.storage.owned || known.storage.poisoned ? this.made(address, false) : known
    })
    return this.entered(recording, 'execution', 'replay')
  }
}
