/**
 * A machine as `simulate` and the compiler's cost model see it: `ranks` processes, each with `devices` devices that are all alike, one thread that
 * issues for them, links between them, and links to the other ranks. Every number is in the unit that its comment names; times are nanoseconds, sizes bytes,
 * rates bytes or floating-point operations a *second*. Figures that ship with Braid say where they come from in the machine's own file.
 */
export interface Machine {
  readonly name: string
  /** Count. Devices that one process drives. */
  readonly devices: number
  /** Count. Processes that take part in each collective. Every rank is taken to run the same plan at the same pace. */
  readonly ranks: number
  readonly device: DeviceModel
  readonly host: HostModel
  /** Copies between two devices of one process. */
  readonly peer: CopyModel
  readonly collectives: CollectiveModel
}

export interface DeviceModel {
  /** Bytes of device memory. */
  readonly memory: number
  /** Bytes a second, read and written together, of a kernel that does little else. Source: a copy from device to device. */
  readonly bandwidth: number
  /** Bytes of the cache that all of the device shares. What a kernel moves stays in it where it is half of this or less, and not at all where it is all of it. */
  readonly cache: number
  /** Bytes a second of what stays in that cache. Source: chains of kernels over a few MiB. */
  readonly cacheBandwidth: number
  /** Floating-point operations a second of a matrix product at the full clock, by the type of its elements. Source: large products with pauses between them. */
  readonly flops: {
    readonly bf16: number
    readonly f16: number
    readonly f32: number
    /** Of all that is not a matrix product: elementwise arithmetic in f32. Source: the vendor's figure. */
    readonly vector: number
  }
  /**
   * What the device's power allows for long, as parts of its time: the clock gives way where a tick's runs would draw more. `products`: of the rate above, what large products
   * reach one after the other. `memory`: of all power, what a kernel draws that does little but move memory.
   */
  readonly power: { readonly products: number; readonly memory: number }
  /** Count. Multiprocessors: a kernel with fewer thread blocks leaves the others to kernels beside it. Source: the driver's attribute. */
  readonly multiprocessors: number
  /** Bytes that one thread block of an elementwise kernel moves: how many blocks a small kernel has. Source: the kernels that Braid generates. */
  readonly bytesPerBlock: number
  /** Count. Rows and columns of c that one thread block of a matrix product yields, half or twice of it where that fits better: small products leave multiprocessors idle. */
  readonly tile: number
  /** Nanoseconds from when a kernel may start to when its own work begins, and from its end to whatever follows it on its lane, together. Source: chains of small kernels. */
  readonly kernelLatency: number
  /** Nanoseconds of a matrix product instead. What is more than `kernelLatency` its blocks spend on multiprocessors, filling pipelines first and writing tiles last. Source: small products. */
  readonly productLatency: number
  /** Nanoseconds from a record's point to the start of what waits for it on another lane. Source: two lanes that take turns. */
  readonly waitLatency: number
  /** Count. Kernels and copies outstanding on one lane; the thread that issues one more is blocked until the oldest ends. Source: measured. */
  readonly queueDepth: number
  /** Count. Queues that lanes share in turn: of more lanes than these, each holds less by as much. Source: measured. */
  readonly queues: number
  /** Bytes a second of both directions together, where that is less than each of them alone reaches. Source: large copies both ways at once. */
  readonly bus: number
  /** Host to device. */
  readonly h2d: CopyModel
  /** Device to host. */
  readonly d2h: CopyModel
}

/** A direction of copying. Each engine takes one copy at a time, at `rate` unless the bus or the memory has less left. */
export interface CopyModel {
  /** Count. Copies at one time. */
  readonly engines: number
  /** Bytes a second of one copy. Source: a large copy from or to pinned memory. */
  readonly rate: number
  /** Nanoseconds that a copy takes beside its bytes. Source: a chain of small copies. */
  readonly latency: number
}

/** The host: what each call costs the thread that issues, and what the program's own thread does for each tick. */
export interface HostModel {
  /** Nanoseconds on the issuing thread to launch a kernel. Source: an empty kernel. */
  readonly launch: number
  /** Nanoseconds on the issuing thread to start a matrix product, which a library does. Source: chains of products. */
  readonly product: number
  /** Nanoseconds on the issuing thread to start a copy. Source: a small copy. */
  readonly copy: number
  /** Nanoseconds on the issuing thread to record an event. */
  readonly record: number
  /** Nanoseconds on the issuing thread to make a lane wait. */
  readonly wait: number
  /** Nanoseconds on the issuing thread of an allocation, a free or a use. */
  readonly allocate: number
  /** Nanoseconds on the issuing thread to start a collective. */
  readonly collective: number
  /** Nanoseconds of a function that the host runs on a lane, beside its bytes. */
  readonly callback: number
  /** Nanoseconds of the program's own thread for each tick: asking feeds, submitting, leasing outputs. */
  readonly tick: number
  /** Nanoseconds from the end of a tick on the device to when the program's own thread may fill its slot again. */
  readonly turnaround: number
  /** Bytes a second at which the program's own thread fills an input's slot, and at which steps on the host move their bytes. */
  readonly bandwidth: number
  /** Bytes of a tick's inputs that the host's cache holds, and bytes a second at which those are filled. Source: frames of 1 MiB and of 64. */
  readonly cache: number
  readonly cacheBandwidth: number
}

/**
 * Collectives among all ranks, by bus bandwidth as nccl-tests define it: the bytes that one rank must send or receive at the least, a second. So a
 * rate is the same for any number of ranks: an all-gather to `b` bytes takes b · (n - 1) / n / rate.
 */
export interface CollectiveModel {
  /** Bytes a second. Source: nccl-tests, or one block's collective. */
  readonly allGather: number
  /** Bytes a second. */
  readonly reduceScatter: number
  /** Bytes a second. */
  readonly allReduce: number
  /** Bytes a second. */
  readonly allToAll: number
  /** Bytes a second. */
  readonly broadcast: number
  /** Bytes a second, from one rank to one other. */
  readonly sendReceive: number
  /** Nanoseconds that a collective takes beside its bytes. */
  readonly latency: number
  /** Count. Multiprocessors that a collective keeps from other kernels while it runs. */
  readonly multiprocessors: number
}

/** How many kernels and copies each of so many lanes of one device may hold, all of them as full. */
export const laneDepth = ({ queueDepth, queues }: Machine['device'], lanes: number): number =>
  Math.max(1, Math.floor(queueDepth / Math.max(1, Math.ceil(lanes / queues))))
