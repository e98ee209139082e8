// The one door between `runtime` and `native`: the shape of the addon, and the loader. Nothing else imports the binary.
import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'
import type { KernelSpec } from '../dsl/ir/kernel-spec.js'

/** Errors thrown or rejected by the addon: an Error with these fields. `code` is the driver's name, e.g. CUDA_ERROR_OUT_OF_MEMORY. */
export interface NativeFailure extends Error {
  readonly code: string
  /** The driver call or phase that failed: `memAllocate`, `prepare matmul[3]`, `run matmul[3]`. */
  readonly op: string
  readonly lane?: string
  /** Index of the plan's node, where one is at fault. */
  readonly node?: number
  readonly detail?: string
  /** Bytes wanted and bytes free, for memory failures. */
  readonly wantedBytes?: number
  readonly freeBytes?: number
}

export interface HostOptions {
  /** Bytes of device memory that the host device has; default 4 GiB. */
  readonly memory?: number
  /** Bytes a second for copies between host and device; 0 or absent: as fast as it goes. */
  readonly copyRate?: number
  /** Floating-point operations a second for matmul. */
  readonly flopRate?: number
  /** Bytes a second through device memory for everything else. */
  readonly deviceRate?: number
  /** Seed of the random delays before each piece of work; 0 or absent: none. */
  readonly jitter?: number
  readonly jitterMicroseconds?: number
  /** Fill memory with garbage when it is given out and taken back. */
  readonly poison?: boolean
  readonly faults?: readonly { readonly call: string; readonly nth: number; readonly status?: number }[]
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
}

/** Life as a number: tick 0, state 1, param 2, input 3, output 4. Space: device 0, pinned 1. */
export interface NativeBuffer {
  readonly name: string
  readonly bytes: number
  readonly space: 0 | 1
  readonly home: number
  readonly life: 0 | 1 | 2 | 3 | 4
  /** The buffer whose bytes these are (itself, if it is no view), and where in it. */
  readonly root: number
  readonly rootOffset: number
  /** Place in the arena, with storage planned; else -1. */
  readonly arenaOffset: number
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
  readonly lanes: readonly { readonly name: string; readonly priority: number }[]
  readonly buffers: readonly NativeBuffer[]
  /** Distinct kernels; each node names one. A kernel of kind `cuda` on the host device needs its entry in `references`. */
  readonly kernels: readonly KernelSpec[]
  readonly nodes: readonly { readonly name: string; readonly kernel: number }[]
  readonly events: number
  readonly commands: Int32Array
  readonly storage: 'pooled' | 'planned'
  readonly arenaBytes: number
  /** Bytes that the device and the pinned memory may hold for this program. */
  readonly bound: { readonly device: number; readonly pinned: number }
}

export interface NativeProgramOptions {
  /** Time each run with events; read them with `trace()`. */
  readonly trace?: boolean
  /** Fill every block with garbage on the new owner's lane when it is given out (either device). */
  readonly poison?: boolean
  /**
   * By kernel index: computes a user's kernel on `host`. It sees copies of device memory, which it may keep: one of each read, and
   * of each write as it was, whose bytes go back into device memory when the function returns: a write must not be detached by then.
   */
  readonly references?: Readonly<Record<number, (reads: ArrayBuffer[], writes: ArrayBuffer[]) => void>>
}

export interface NativeStats {
  /** Bytes of tick, state and param blocks given out: now, and the most ever. */
  readonly allocated: number
  readonly allocatedPeak: number
  /** Bytes held from the driver, workspaces and all; and the furthest byte of the pool that was ever given out. */
  readonly reserved: number
  readonly reservedPeak: number
  readonly poolPeak: number
  readonly pinned: number
  /** Ticks completed, and nanoseconds that the issuing thread took for each of the last 1,024. */
  readonly ticks: number
  readonly issueNanoseconds: Float64Array
  /** Allocations served: by order; by making the lane wait; by growth. */
  readonly byOrder: number
  readonly byWait: number
  readonly byGrowth: number
  /** Driver objects created since the program's first tick was issued: 0 in steady state. */
  readonly eventsCreated: number
}

/** What really ran, in order of issue: the newest 1,048,576 runs. Times are milliseconds since the session's first traced run. */
export interface NativeTrace {
  readonly tick: Float64Array
  readonly node: Int32Array
  readonly lane: Int32Array
  readonly start: Float64Array
  readonly end: Float64Array
  /** Older rows that are no longer kept. */
  readonly dropped: number
}

export interface NativeProgram {
  /**
   * The pinned memory of an input, output or pinned param buffer, in one slot (0 for params), as an ArrayBuffer over it.
   * One live view a buffer and slot: a new call detaches the one before.
   */
  view(buffer: number, slot: number): ArrayBuffer
  /** Copies bytes into a device state or param buffer, before the first tick. */
  load(buffer: number, bytes: Uint8Array): Promise<void>
  /** Copies a device state or param buffer out, after what is in flight. */
  read(buffer: number): Promise<ArrayBuffer>
  /** Hands tick number `tick` (0, 1, 2 …) to the issuing thread and returns at once. Slot = tick mod inFlight, filled before. */
  submit(tick: number): void
  /** Called once for each submitted tick, in order. After a failure every later tick fails with the same error. */
  onTick(callback: (tick: number, failure: NativeFailure | null) => void): void
  stats(): NativeStats
  trace(): NativeTrace
  /** Waits for what is in flight, then frees everything. Idempotent. Views are detached first. */
  close(): Promise<void>
}

export interface NativeDevice {
  readonly info: NativeDeviceInfo
  memory(): { readonly free: number; readonly total: number }
  /** Compiles the kernels and takes the memory off the JavaScript thread. Rejects with a NativeFailure. */
  program(spec: NativeProgramSpec, options: NativeProgramOptions): Promise<NativeProgram>
  /** Refused while a program is open. Idempotent. */
  close(): void
}

export interface Addon {
  readonly version: string
  probe(): NativeReport
  openHost(options: HostOptions): NativeDevice
  openCuda(ordinal: number): NativeDevice
  /** Makes an ArrayBuffer's length 0, so that a view kept too long reads nothing. */
  detach(buffer: ArrayBuffer): void
}

const candidates = [
  '../native/build/braid.node',
  '../../native/build/braid.node',
  '../native/build/Release/braid.node',
  '../../native/build/Release/braid.node',
]

let loaded: Addon | undefined

/** The addon, loaded once. Throws an Error that says how to build it where it is missing. */
export const native = (): Addon => {
  if (loaded) return loaded
  const require = createRequire(import.meta.url)
  const tried: string[] = []
  for (const candidate of candidates) {
    const path = fileURLToPath(new URL(candidate, import.meta.url))
    try {
      loaded = require(path) as Addon
      return loaded
    } catch (error) {
      tried.push(`${path}: ${(error as Error).message.split('\n')[0]}`)
    }
  }
  throw new Error(`Braid's native addon is not built. Run: npm run build\n${tried.map(line => `  ${line}`).join('\n')}`)
}
