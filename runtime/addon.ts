// The one door between `runtime` and `native`: the addon's types, and the addon. No other file has the binary
// loaded.
import type { KernelSpec } from '../dsl/ir/kernel-spec.js'
import { loadAddon, thisMachine } from './addon-file.js'

/** An Error that the addon throws or rejects with. `code` is the driver's name: CUDA_ERROR_OUT_OF_MEMORY. */
export interface NativeFailure extends Error {
  readonly code: string
  /** The driver call or phase that failed: `memAllocate`, `prepare matmul[3]`, `run matmul[3]`. */
  readonly op: string
  readonly lane?: string
  /** `cuda:1`, `host:0`: the device that failed. */
  readonly device?: string
  /** Index of the plan's node, where one is at fault. */
  readonly node?: number
  readonly detail?: string
  /** Bytes wanted and bytes free, for memory failures. */
  readonly wantedBytes?: number
  readonly freeBytes?: number
  /** Who holds the memory, in words. */
  readonly holders?: string
}

export interface HostFault {
  /** A method of the driver table, or `run`: a piece of work of a stream or a graph. */
  readonly call: string
  /** Which use of it, counted from 1 when the device is opened. */
  readonly nth: number
  /** The CUDA error that it fails with; default 999, an unknown one. */
  readonly status?: number
  /** Of a `run` alone: instead of failing, it takes so much longer. */
  readonly delayMicroseconds?: number
}

export interface HostOptions {
  /** The number of the host device in this process; default 0. */
  readonly ordinal?: number
  /** Bytes of device memory that the host device has; default 4 GiB. */
  readonly memory?: number
  /** Bytes a second for copies between host and device, and between devices; 0 or absent: not slowed. */
  readonly copyRate?: number
  /** Floating-point operations a second for matmul. */
  readonly flopRate?: number
  /** Bytes a second through device memory for everything else. */
  readonly deviceRate?: number
  /** Seed of the random delays before each piece of work; 0 or absent: none. */
  readonly jitter?: number
  readonly jitterMicroseconds?: number
  /**
   * The most pieces of work in a stream's queue: a call for one more waits, as on a GPU (some 1,021 there). 0
   * or absent: any number.
   */
  readonly queueDepth?: number
  /** Fill memory with garbage when it is given out and taken back. */
  readonly poison?: boolean
  readonly faults?: readonly HostFault[]
}

export interface NativeDeviceInfo {
  readonly kind: 'host' | 'cuda'
  readonly name: string
  readonly ordinal: number
  readonly totalBytes: number
  readonly freeBytes: number
  readonly computeCapability: string
  readonly multiprocessors: number
  readonly driverVersion: number
  readonly pageBytes: number
}

export interface NativeReport {
  readonly devices: readonly NativeDeviceInfo[]
  readonly libraries: readonly { name: string; found: string; version: string; problem: string }[]
  /**
   * Whether cuDNN is asked: `measured`, where it is faster; on GPUs from this compute capability on (80:
   * 8.0), of problems of so many floating-point operations. `always` asks it of all problems, and measures
   * nothing.
   */
  readonly cudnn: { use: 'measured' | 'never' | 'always'; leastArchitecture: number; askedFrom: number }
  /**
   * The measured choices of algorithms: the folder where they are kept (empty: nowhere), why it is not used
   * (empty: it is), how many are there, and how many this process has measured. And how many kernels of this
   * process call cuDNN.
   */
  readonly choices: { folder: string; refusal: string; kept: number; measured: number; byCudnn: number }
  /**
   * The code of generated kernels: the folder where it is kept and why it is not used, as above, of how many
   * kernels, and how many this process has compiled.
   */
  readonly kernels: { folder: string; refusal: string; kept: number; compiled: number }
}

/** Life as a number: tick 0, state 1, param 2, input 3, output 4. Space: device 0, pinned 1. */
export interface NativeBuffer {
  readonly name: string
  readonly bytes: number
  readonly space: 0 | 1
  readonly home: number
  readonly life: 0 | 1 | 2 | 3 | 4
  /**
   * The buffer whose bytes these are (the buffer itself, unless it is a view), and the offset in that buffer.
   */
  readonly root: number
  readonly rootOffset: number
  /** The offset in its device's arena, with planned storage; else -1. */
  readonly arenaOffset: number
  readonly device: number
}

/**
 * A plan made flat for the executor. `commands` is a run of words:
 *
 * | words | |
 * |---|---|
 * | `0 buffer lane` | alloc |
 * | `1 buffer` | free |
 * | `2 node lane r w reads… writes…` | run |
 * | `3 event lane` | record |
 * | `4 event lane tick` | wait; tick 0 or -1 |
 * | `5 buffer lane event` | use |
 */
export interface NativeProgramSpec {
  readonly name: string
  readonly inFlight: number
  readonly lanes: readonly { readonly name: string; readonly priority: number; readonly device: number }[]
  readonly buffers: readonly NativeBuffer[]
  /**
   * Distinct kernels; each node names one. On the host device a kernel of kind `cuda` needs an entry in
   * `references`.
   */
  readonly kernels: readonly KernelSpec[]
  readonly nodes: readonly { readonly name: string; readonly kernel: number; readonly peerAccess: boolean }[]
  readonly events: number
  readonly commands: Int32Array
  /**
   * Ranges of commands that are launched as graphs: commands `from` up to `to`, counted, not words. Graph g
   * has the edges `edgeStart[g]` up to `edgeStart[g + 1]`, edge e from command `edges[2e]` to `edges[2e +
   * 1]`.
   */
  readonly graphs: {
    readonly from: Int32Array
    readonly to: Int32Array
    readonly edgeStart: Int32Array
    readonly edges: Int32Array
  }
  readonly storage: 'pooled' | 'planned'
  /** Each tick begins, on the device, after the end of the tick before, its blocks where they were then. */
  readonly enforced: boolean
  /** By device: the bytes of one arena. */
  readonly arenaBytes: readonly number[]
  /**
   * Default 1: all ticks have one arena. Else `inFlight`: each slot's tick has an arena and streams of its
   * own.
   */
  readonly arenas?: number
  /** Bytes that each device and the pinned memory may hold for this program. */
  readonly bound: { readonly device: readonly number[]; readonly pinned: number }
}

export interface NativeProgramOptions {
  /** The devices after the first one, of a program for several: all of one kind. */
  readonly peers?: readonly NativeDevice[]
  /** Time each run with events; read them with `trace()`. */
  readonly trace?: boolean
  /** Fill every block with garbage on the new owner's lane when it is given out (either device). */
  readonly poison?: boolean
  /** Parameters whose blocks are filled already: pairs of a root buffer and a block of its device. */
  readonly shared?: readonly (readonly [buffer: number, block: number])[]
  /** Its ticks are launches of this sequence. */
  readonly sequence?: NativeSequence
  /** Is set while the program opens: the runs whose kernels are prepared, and all runs. */
  readonly prepared?: Int32Array
  /**
   * By kernel index: a function that computes a user's kernel on `host`. It gets copies of device memory,
   * which it may keep: one of each read, and one of each write with its present bytes. When it returns, the
   * bytes of the writes go back into device memory, so a write must not be detached.
   */
  readonly references?: Readonly<Record<number, (reads: ArrayBuffer[], writes: ArrayBuffer[]) => void>>
}

export interface NativeStats {
  /** Bytes of tick, state and param blocks that are allocated: now, and at the peak. */
  readonly allocated: number
  readonly allocatedPeak: number
  /**
   * Bytes held from the driver, workspaces included; and the end of the furthest allocation in the pool so
   * far.
   */
  readonly reserved: number
  readonly reservedPeak: number
  readonly poolPeak: number
  readonly pinned: number
  /** Completed ticks, and the issuing thread's nanoseconds for each of the last 1,024. */
  readonly ticks: number
  readonly issueNanoseconds: Float64Array
  /** Allocations served: by order; by making the lane wait; by growth. */
  readonly byOrder: number
  readonly fullQueues: number
  readonly graphLaunches: number
  readonly byWait: number
  readonly byGrowth: number
  /** Driver objects created since the program's first tick was issued: 0 in steady state. */
  readonly eventsCreated: number
  /** By device; the bytes above are the sums. */
  readonly devices: readonly {
    readonly allocated: number
    readonly allocatedPeak: number
    readonly reserved: number
    readonly poolPeak: number
  }[]
}

/**
 * The newest 1,048,576 runs, in order of issue. Times are milliseconds since the session's first traced run.
 * When the program is opened, the clocks of several devices are aligned to some 20 µs.
 */
export interface NativeTrace {
  readonly tick: Float64Array
  readonly node: Int32Array
  readonly lane: Int32Array
  readonly start: Float64Array
  readonly end: Float64Array
  /** How many older rows were dropped. */
  readonly dropped: number
}

export interface NativeProgram {
  /**
   * The pinned memory of an input, output or pinned param buffer, in one slot (0 for params), as an
   * ArrayBuffer over it. A buffer and slot have one live view: a new call detaches the view before.
   */
  view(buffer: number, slot: number): ArrayBuffer
  /** Detaches such an ArrayBuffer, so that a view that is used too late reads nothing. */
  detach(view: ArrayBuffer): void
  /**
   * Until the loan ends, closing leaves the view and its memory as they are: work outside of JavaScript may
   * be writing it. A view may be lent several times.
   */
  lend(view: ArrayBuffer): void
  endLoan(view: ArrayBuffer): void
  /**
   * The block of an output in device memory, in one slot: its handle for the space of its device, its address
   * and its size. The next tick in the slot comes after all uses that were marked on it.
   */
  block(buffer: number, slot: number): readonly [handle: number, address: number, size: number]
  /**
   * Copies bytes into a device state or param buffer, after the ticks in flight: submit none before it
   * resolves.
   */
  load(buffer: number, bytes: Uint8Array): Promise<void>
  /** Copies a device state or param buffer out, after the ticks in flight: submit none before it resolves. */
  read(buffer: number): Promise<ArrayBuffer>
  /**
   * Copies states and parameters of another program on the same devices into this one's, on their devices:
   * pairs of a buffer there and a buffer here. After the ticks in flight of both: submit none before it
   * resolves.
   */
  take(from: NativeProgram, buffers: Uint32Array): Promise<void>
  /**
   * Hands tick number `tick` (0, 1, 2 …) to the issuing thread and returns at once. Its inputs and outputs
   * are in the slot, filled before: tick mod inFlight where none is named. In a sequence it comes after
   * `uses`: events of the device, by number, whose owner keeps them until the call returns.
   */
  submit(tick: number, slot?: number, uses?: readonly number[]): void
  /**
   * Called once for each submitted tick, in order. After a failure every later tick fails with the same
   * error.
   */
  onTick(callback: (tick: number, failure: NativeFailure | null) => void): void
  stats(): NativeStats
  trace(): NativeTrace
  /** Waits for the ticks in flight, then frees everything. Idempotent. Views are detached first. */
  close(): Promise<void>
}

/**
 * Launches of several programs of one device over the same memory: each begins, on the device, after the end
 * of the one that was submitted before it.
 */
export interface NativeSequence {
  /** How many launches the issuing thread has issued. */
  issued(): number
  /** Resolves when so many have been issued, or none will be any more. */
  whenIssued(count: number): Promise<void>
  /** Makes a stream come after the launch that was issued last. A code of the driver. */
  order(lane: number): number
}

export interface NativeDevice {
  readonly info: NativeDeviceInfo
  memory(): { readonly free: number; readonly total: number }
  /** Compiles the kernels and takes the memory off the JavaScript thread. Rejects with a NativeFailure. */
  program(spec: NativeProgramSpec, options: NativeProgramOptions): Promise<NativeProgram>
  sequence(): NativeSequence
  /** Fails while a program is open. Idempotent. */
  close(): void
}

/** A user's kernel of a caching device. Opaque. */
export interface NativeKernel {
  readonly nativeKernel: never
}

/** All options of one allocator of a caching device; Infinity means no bound. */
export interface NativeAllocatorOptions {
  readonly policy: string
  readonly limit: number
  /** The same as a share of the device's bytes; below 1, the lower of both counts. */
  readonly fraction: number
  readonly expandable: boolean
  readonly movePages: boolean
  readonly maxSplit: number
  readonly maxNonSplitRounding: number
  readonly largeSegment: number
  readonly collectAbove: number
  readonly refuseEarly: boolean
  readonly divisions: readonly number[]
  readonly roundUpTo: number
  readonly cacheUpTo: number
  readonly reserveFirst: number
}

/**
 * The frequent calls of one allocator. Lanes, pools, blocks and events are numbers. A code is 0, the
 * driver's, or a refusal: -1 the device is closed, -2 the device waits for the function that calls it, -3 no
 * such handle.
 */
export interface NativeSpace {
  /**
   * The block, with its address and size in `out`; or 0, with the code in `out`. Pool 0 is the device's own.
   */
  malloc(lane: number, bytes: number, pool: number, site: number): number
  free(block: number): number
  recordUse(block: number, lane: number): number
  recordStream(block: number, lane: number): number
  keepUntil(block: number, event: number): number
  /** A block of a program's output is given back: what lanes were noted by recordStream is marked now. */
  endLoan(block: number): number
  /** Makes the lane, the block's home, wait for every use that was marked, also by recordStream. */
  waitUses(block: number, lane: number): number
  /** 1 where graphs or sessions keep the block's memory beyond its free, else 0. */
  held(block: number): number
}

export interface NativeShortage {
  readonly wanted: number
  readonly size: number
  readonly reserved: number
  readonly limit: number | null
  readonly live: number
  readonly pending: number
  readonly free: number
  readonly longestFree: number
  readonly otherPools: number
  /** The bytes that a pool's own allocator was asked for and did not give; 0: none was asked. */
  readonly asked: number
  readonly deviceFree: number
  readonly deviceTotal: number
  /** The largest, by site. */
  readonly holders: readonly { readonly bytes: number; readonly count: number; readonly site: number }[]
}

/** Rows of numbers, as native/bindings/allocator_report.h describes them. */
export interface NativeSnapshot {
  readonly lanes: Float64Array
  readonly laneNames: readonly string[]
  readonly segments: Float64Array
  readonly pinnedSegments: Float64Array
  readonly history: Float64Array
  readonly pinnedHistory: Float64Array
}

/** What a node must not outlive: a block that is alive, or any object of JavaScript. */
export type NativeOwner = { readonly space: number; readonly block: number } | { readonly value: object }

export interface NativeGraphEvent {
  readonly native: 'graph event'
}

/** What a node does, with the owners of what it refers to. */
export type NativeNode =
  | { readonly kind: 'empty' }
  /** Of memory that `malloc` of the same graph gave. */
  | { readonly kind: 'free'; readonly address: number }
  | {
      readonly kind: 'copy'
      /** As for `NativeCachingDevice.copy`. */
      readonly copyKind: number
      readonly to: number
      readonly from: number
      readonly bytes: number
      readonly owners: readonly [NativeOwner | undefined, NativeOwner | undefined]
    }
  | {
      readonly kind: 'fill'
      readonly to: number
      readonly value: number
      readonly elementBytes: number
      readonly width: number
      readonly height: number
      readonly pitch: number
      readonly owners: readonly [NativeOwner | undefined]
    }
  | {
      readonly kind: 'kernel'
      readonly kernel: NativeKernel
      /** As for `NativeCachingDevice.launch`. */
      readonly words: Float64Array
      readonly owners: readonly (NativeOwner | undefined)[]
    }
  /** Sets a condition to a 32-bit word of memory. */
  | {
      readonly kind: 'condition'
      readonly condition: bigint
      readonly from: number
      readonly owner: NativeOwner | undefined
    }
  | { readonly kind: 'callback'; readonly function: () => void; readonly ordered: boolean }
  | {
      readonly kind: 'callback'
      readonly library: string
      readonly symbol: string
      readonly data?: Uint8Array
    }
  | { readonly kind: 'record' | 'wait'; readonly event: NativeGraphEvent }
  | { readonly kind: 'wait'; readonly mark: number }

/** The numbers of nodes and graphs that are no more. */
export interface NativeGone {
  readonly nodes: readonly number[]
  readonly graphs: readonly number[]
}

/** A root graph, number 0, with all graphs inside it. Graphs and nodes are numbers that are used once. */
export interface NativeGraph {
  /** A graph of its own, with all that the nodes keep. */
  clone(graph: number): NativeGraph
  add(graph: number, after: readonly number[], node: NativeNode): number
  /** Memory that lives in launches: the node, and the address. */
  malloc(graph: number, after: readonly number[], bytes: number): readonly [node: number, address: number]
  embed(graph: number, after: readonly number[], child: NativeGraph, childGraph: number): number
  /** `initial`: the value at the start of each launch. */
  condition(graph: number, initial?: number): bigint
  /** Kind: 0 if, with one body or two; 1 while; 2 switch. */
  conditional(
    graph: number,
    after: readonly number[],
    condition: bigint,
    kind: number,
    bodies: number,
  ): number
  update(graph: number, node: number, params: NativeNode): void
  updateChild(graph: number, node: number, child: NativeGraph, childGraph: number): NativeGone
  destroy(graph: number, node: number): NativeGone
  setEdge(graph: number, from: number, to: number, present: boolean): void
  nodes(graph: number): readonly number[]
  /** From, to, from, to, and so on. */
  edges(graph: number): readonly number[]
  /** CUgraphNodeType's number. */
  kind(node: number): number
  bodies(graph: number, node: number): readonly number[]
  dot(graph: number): string
  /** The executable; or the reason, in words, why there is none. */
  instantiate(graph: number, nodePriorities: boolean): NativeExecutable | string
  /** Begins to capture a lane into the graph. Mode: 0 global, 1 of this thread, 2 relaxed. */
  /** `restores`: the graph existed before, and is as it was then where the capture is given up. */
  capture(graph: number, lane: number, mode: number, restores: boolean): NativeCapture
  /** Gives up the whole. Idempotent. */
  close(): void
}

/** A capture of lanes into a graph. */
export interface NativeCapture {
  /**
   * What the lane is given becomes a node after its last ones. Returns the number of a node that sets a
   * condition, where it is found.
   */
  work(lane: number, node: NativeNode): number | undefined
  /** A node after the lane's last ones, of what would be no node as its work: one that records an event. */
  add(lane: number, node: NativeNode): void
  record(lane: number, event: NativeGraphEvent): void
  /** The lane joins the capture. */
  wait(lane: number, event: NativeGraphEvent): void
  /** 0 none, 1 active, 2 invalidated. */
  status(lane: number): number
  embed(lane: number, child: NativeGraph, childGraph: number): void
  conditional(lane: number, condition: bigint, kind: number, bodies: number): number
  /**
   * As `NativeSpace.malloc`, with the number of the home lane in `out` too. Pool 0 is the capture's own.
   */
  malloc(lane: number, bytes: number, pool: number, site: number): number
  /**
   * A use of a block of the capture's pools, or with `stream` all uses until its free; another one is kept.
   */
  use(lane: number, block: { readonly space: 0 | 1; readonly block: number }, stream: boolean): void
  end(): void
  /**
   * Ends the capture, if it has not ended, and returns what has gone by that, or by an end that failed.
   * `restored`: whether the graph is as it was before. Idempotent.
   */
  abandon(): NativeGone & { readonly restored: boolean }
}

export interface NativeExecutable {
  /** For `launchGraph` and `uploadGraph`. */
  readonly number: number
  /** Empty, or the reason, in words, why nothing has changed. */
  update(graph: NativeGraph, root: number): string
  updateNode(graph: NativeGraph, node: number, params: NativeNode): void
  updateChild(graph: NativeGraph, node: number, child: NativeGraph, childGraph: number): void
  enable(graph: NativeGraph, node: number, enabled: boolean): void
  enabled(graph: NativeGraph, node: number): boolean
  destroy(): void
}

export interface NativeLane {
  readonly id: number
  readonly stream: bigint
}

/**
 * A share of a device's memory: a driver with lanes, and two allocators, of device memory (space 0) and of
 * pinned host memory (space 1). Handles get only cheap checks.
 */
export interface NativeCachingDevice {
  /** Shares with one number are of one memory: their lanes, blocks and events go together. */
  readonly memoryId: number
  /**
   * The options that the memory was opened with, as `openCaching` was given them; '' where it was not shared.
   */
  readonly settings: string
  readonly info: NativeDeviceInfo
  readonly out: Float64Array
  readonly device: NativeSpace
  readonly pinned: NativeSpace
  /** The event, with its point in `out`; or 0, with the code in `out`. It is held until `drop`. */
  record(lane: number): number
  /** The same with an event of its own, which records the time. */
  recordTime(lane: number): number
  /** Between two such events, in milliseconds, in `out`: 0, or 600 where one of them has not completed. */
  elapsed(from: number, to: number): number
  /** In `out`: 1 where a wait was put on the lane. */
  wait(lane: number, event: number): number
  /** For an event of another device of the kind. */
  waitPeer(lane: number, event: number): number
  drop(event: number): number
  /** 0, or 600 where it has not completed. */
  done(event: number): number
  /** Kind: 0 host to device, 1 device to host, 2 device to device, 3 host to host. */
  copy(lane: number, kind: number, to: number, from: number, bytes: number): number
  fill32(lane: number, to: number, value: number, words: number): number
  /** Elements of 1, 2 or 4 bytes: `height` rows of `width` each, `pitch` bytes apart. */
  fill(
    lane: number,
    to: number,
    value: number,
    elementBytes: number,
    width: number,
    height: number,
    pitch: number,
  ): number
  idle(lane: number): number
  /** Calls the function once on the JavaScript thread, which the lane does not wait for. */
  callback(lane: number, callback: () => void): number
  /**
   * `words`: grid and block (3 numbers each), bytes of shared memory, the scalars, then the address and the
   * bytes of each read and of each write.
   */
  launch(lane: number, kernel: NativeKernel, words: Float64Array): number
  /** The function is called after graphs have let go of what they kept, in a turn of its own. */
  onReleased(released: () => void): void
  /** Records an event of graphs on a lane, or makes the lane wait for its newest record. */
  recordEvent(lane: number, event: NativeGraphEvent): number
  waitEvent(lane: number, event: NativeGraphEvent): number
  /** 0, with the milliseconds in `out`, or a code: 600 not done, 400 not recorded, 1 recorded in a capture. */
  elapsedEvents(from: NativeGraphEvent, to: NativeGraphEvent): number
  /** `awaitsHost`: 1 where the launch waits for JavaScript. */
  launchGraph(lane: number, executable: number, awaitsHost: 0 | 1): number
  uploadGraph(lane: number, executable: number, awaitsHost: 0): number

  /**
   * Compiles a kernel off the JavaScript thread. On the host device the function computes it, as described at
   * `references`; it gets the scalars of the launch too.
   */
  prepareKernel(
    kernel: {
      readonly name: string
      readonly source: string
      readonly reads: number
      readonly writes: number
      readonly scalars: readonly ('i32' | 'f32')[]
    },
    reference: ((reads: ArrayBuffer[], writes: ArrayBuffer[], scalars: number[]) => void) | undefined,
  ): Promise<NativeKernel>
  /**
   * Makes a lane of a priority (-1 high, 0, 1 low); with priority undefined, over the caller's stream. Null:
   * there are too many.
   */
  addLane(name: string, priority: number | undefined, stream?: bigint): NativeLane | null
  retireLane(lane: number): void
  /** Somebody is given the lane's stream: from here on no two marks of the lane are taken to be one. */
  lendStream(lane: number): void
  /** The home lane of pinned memory, which is given no work. */
  hostLane(): number
  /** A device for programs over the same memory; they take theirs from the pool, 0 being the device's own. */
  sessions(pool: number): NativeDevice
  /** The number of what memory is for, in words. 0: there are too many. */
  site(words: string): number
  /** The words of all sites, by number. */
  sites(): readonly string[]
  synchronizeLane(lane: number): Promise<void>
  synchronizeEvent(event: number): Promise<void>
  /** Makes a pool. It may have its own allocator: two functions, or a library's path and two symbols. */
  makePool(
    useOnOutOfMemory: boolean,
    noSplit: boolean,
    allocate?: ((bytes: number, stream: bigint) => unknown) | string,
    release?: ((address: number, bytes: number, stream: bigint) => void) | string,
    symbol?: string,
  ): { readonly handle: number; readonly id: number }
  closePool(pool: number): void
  view(block: number): ArrayBuffer
  freeViewed(block: number): number
  /** As of a NativeProgram's: a block that is freed, and a device that is closed, leave the memory in use. */
  lend(block: number): void
  endLoan(view: ArrayBuffer): void
  stats(space: 0 | 1): Float64Array
  resetPeaks(space: 0 | 1): void
  resetAccumulated(space: 0 | 1): void
  emptyCache(pool: number): Promise<void>
  memory(): { readonly free: number; readonly total: number }
  /** 0 stops. */
  keepHistory(entries: number): void
  snapshot(): NativeSnapshot
  shortage(space: 0 | 1): NativeShortage
  describe(status: number): { readonly code: string; readonly detail: string; readonly sticky: boolean }
  takeThrown(): readonly [unknown] | undefined
  /** The observer must not throw. It returns whether it freed something. */
  observe(observer: (space: 0 | 1, shortage: NativeShortage) => boolean): void
  /** The bytes outside V8's heap that were reported to V8, by all modules together. */
  externalBytes(): number
  /** Blocks the lane until the gate is opened, or the device closed. */
  hold(lane: number): number
  openGate(gate: number): void
  /** A new definition. */
  graph(): NativeGraph
  graphEvent(timed: boolean): NativeGraphEvent
  /** Bytes that back memory of graphs' own, and those of them that graphs use. */
  graphMemory(): { readonly used: number; readonly reserved: number }
  trimGraphMemory(): void
  close(): Promise<void>
}

/**
 * A trace of an allocator, one entry for each operation: 0 allocates, 1 asks for a free, 2 completes the
 * free.
 */
export interface NativeTraceOps {
  readonly kinds: Uint8Array
  readonly streams: Uint8Array
  readonly ids: Float64Array
  /** As asked for; of allocations only. */
  readonly bytes: Float64Array
}

/** Sizes in bytes, times in nanoseconds of the calling thread. */
export interface NativeReplayFigures {
  /** Its name. */
  readonly device: string
  /** The number of runs; times are those of the median run. */
  readonly runs: number
  readonly events: number
  readonly peakLive: number
  readonly peakReserved: number
  /** The most at once: pieces of the driver's memory, or ranges of addresses. */
  readonly segments: number
  /**
   * Time in the allocator's calls, for each event of the trace; and of one call: median, 99th percentile,
   * longest.
   */
  readonly nsPerEvent: number
  readonly nsMedian: number
  readonly ns99: number
  readonly nsMost: number
  /** Waits put on lanes. */
  readonly waits: number
  /** Allocations that moved pages, the number of pages, and the time to unmap and map them. */
  readonly moves: number
  readonly pagesMoved: number
  readonly moveNs: number
  readonly pagesMade: number
  /** The most uses that were pending at once. */
  readonly outstanding: number
  readonly synchronizations: number
  readonly retries: number
  readonly queries: number
  /**
   * Allocations by the step of the fallback chain that served them: cache, order, done, wait, gather, move,
   * grow, last.
   */
  readonly served: readonly number[]
}

/** The error of a replay whose driver is open. */
export interface NativeReplayFailure extends NativeFailure {
  /** The index of the trace's operation. */
  readonly operation: number
  /** Set if there was no memory. */
  readonly shortage?: NativeShortage
}

/** The event loop of the thread that asked for it. */
export interface NativeEventLoop {
  /** Turns without sleep for so many milliseconds from now. It calls no JavaScript for that. */
  turn(milliseconds: number): void
  /** Turns no longer for that. */
  sleep(): void
}

export interface Addon {
  readonly version: string
  probe(): NativeReport
  /** Why files that earlier processes kept were not used, once for each folder, since the last call. */
  keptProblems(): readonly string[]
  openHost(options: HostOptions): NativeDevice
  openCuda(ordinal: number): NativeDevice
  openCaching(
    where: number | HostOptions,
    device: NativeAllocatorOptions,
    pinned: NativeAllocatorOptions,
    /**
     * Joins the memory that is open under this name, with these settings or with `any`; else shares its own.
     */
    name?: string,
    settings?: string,
    any?: boolean,
  ): NativeCachingDevice
  /**
   * Replays a trace on a driver of its own, off the JavaScript thread. Rejects with a NativeReplayFailure.
   */
  replay(
    where: number | HostOptions,
    options: NativeAllocatorOptions,
    trace: NativeTraceOps,
  ): Promise<NativeReplayFigures>
  /** undefined where the event loop is not Node's: in Bun. */
  eventLoop(): NativeEventLoop | undefined
}

let loaded: Addon | undefined

/** Loads the addon once. Throws an AddonError where there is none. */
export const native = (): Addon => {
  loaded ??= loadAddon(thisMachine()) as Addon
  return loaded
}
