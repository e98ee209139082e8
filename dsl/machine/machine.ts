/**
 * A machine as `simulate` and the compiler's cost model see it: `ranks` processes, each with `devices` equal
 * devices, one thread that issues their commands, links between the devices, and links to the other ranks.
 * The comment of a number names its unit: times are nanoseconds, sizes bytes, rates bytes or floating-point
 * operations a *second*. The files of Braid's own machines name the source of each figure.
 */
export interface Machine {
  readonly name: string
  /** Count. Devices that one process drives. */
  readonly devices: number
  /**
   * Count. Processes that take part in each collective; every rank is assumed to run the same plan at the
   * same pace.
   */
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
  /**
   * Bytes a second, reads and writes together, of a kernel bound by memory. Source: a copy from device to
   * device.
   */
  readonly bandwidth: number
  /**
   * Bytes of the device's last-level cache. A kernel that moves at most half as many bytes works in the
   * cache; one that moves as many bytes works in memory.
   */
  readonly cache: number
  /** Bytes a second of a kernel that works in that cache. Source: chains of kernels over a few MiB. */
  readonly cacheBandwidth: number
  /**
   * Floating-point operations a second of a matrix product at the full clock, by element type. Source: large
   * products with pauses between them.
   */
  readonly flops: {
    readonly bf16: number
    readonly f16: number
    readonly f32: number
    /** Everything but matrix products: elementwise arithmetic in f32. Source: the vendor's figure. */
    readonly vector: number
  }
  /**
   * Limits by sustained power, as fractions: the clock falls where the runs of a tick would draw more.
   * `products`: the part of the rate above that large products reach one after the other. `memory`: the part
   * of all power that a kernel bound by memory draws.
   */
  readonly power: { readonly products: number; readonly memory: number }
  /**
   * Count. Multiprocessors: a kernel with fewer thread blocks leaves the others to concurrent kernels.
   * Source: the driver's attribute.
   */
  readonly multiprocessors: number
  /**
   * Bytes that one thread block of an elementwise kernel moves, which give its number of blocks. Source: the
   * kernels that Braid generates.
   */
  readonly bytesPerBlock: number
  /**
   * Count. Rows and columns of c that one thread block of a matrix product yields. Libraries also use tiles
   * of half and twice the size. Small products leave multiprocessors idle.
   */
  readonly tile: number
  /**
   * Nanoseconds from the time at which a kernel may start to the begin of its work, plus those from its end
   * to the start of the lane's next command. Source: chains of small kernels.
   */
  readonly kernelLatency: number
  /**
   * The same for a matrix product. The part above `kernelLatency` occupies multiprocessors: pipelines are
   * filled first and tiles written last. Source: small products.
   */
  readonly productLatency: number
  /**
   * Nanoseconds from a record to the start of a run that waits for it on another lane. Source: two lanes that
   * take turns.
   */
  readonly waitLatency: number
  /**
   * As `kernelLatency`, of a kernel that is a node of an executable graph. Source: a graph of small kernels
   * in a row.
   */
  readonly nodeLatency: number
  /**
   * Count. Kernels and copies outstanding on one lane: issuing one more blocks the thread until the oldest
   * ends. Source: measured.
   */
  readonly queueDepth: number
  /**
   * Count. Hardware queues, which lanes share round-robin: with more lanes than queues each lane holds
   * proportionally less. Source: measured.
   */
  readonly queues: number
  /**
   * Bytes a second of both directions together, where that is less than their sum. Source: large copies both
   * ways at once.
   */
  readonly bus: number
  /** Host to device. */
  readonly h2d: CopyModel
  /** Device to host. */
  readonly d2h: CopyModel
}

/**
 * A direction of copying. Each engine does one copy at a time, at `rate` unless the bus or the memory has
 * less left.
 */
export interface CopyModel {
  /** Count. Copies at one time. */
  readonly engines: number
  /** Bytes a second of one copy. Source: a large copy from or to pinned memory. */
  readonly rate: number
  /** Nanoseconds of a copy in addition to its bytes' time. Source: a chain of small copies. */
  readonly latency: number
}

/**
 * The host: the time of each call on the issuing thread, and the work of the program's own thread for each
 * tick.
 */
export interface HostModel {
  /** Nanoseconds on the issuing thread to launch a kernel. Source: an empty kernel. */
  readonly launch: number
  /**
   * Nanoseconds on the issuing thread to start a matrix product, which a library call does. Source: chains of
   * products.
   */
  readonly product: number
  /** Nanoseconds on the issuing thread to start a copy. Source: a small copy. */
  readonly copy: number
  /** Nanoseconds on the issuing thread to launch an executable graph, beside those of each of its nodes. */
  readonly graph: number
  /** Nanoseconds on the issuing thread for each node of a graph that it launches. */
  readonly node: number
  /** Nanoseconds on the issuing thread to record an event. */
  readonly record: number
  /** Nanoseconds on the issuing thread to make a lane wait. */
  readonly wait: number
  /** Nanoseconds on the issuing thread of an allocation, a free or a use. */
  readonly allocate: number
  /** Nanoseconds on the issuing thread to start a collective. */
  readonly collective: number
  /** Nanoseconds of a host function on a lane, in addition to its bytes' time. */
  readonly callback: number
  /** Nanoseconds of the program's own thread for each tick: to ask feeds, submit, and lease outputs. */
  readonly tick: number
  /**
   * Nanoseconds from the end of a tick on the device until the program's own thread may fill its slot again.
   */
  readonly turnaround: number
  /**
   * Bytes a second at which the program's own thread fills an input's slot, and host functions move bytes.
   */
  readonly bandwidth: number
  /**
   * Bytes of a tick's inputs that fit in the host's cache, and bytes a second at which those are filled.
   * Source: frames of 1 MiB and of 64.
   */
  readonly cache: number
  readonly cacheBandwidth: number
}

/**
 * Collectives among all ranks, by bus bandwidth as nccl-tests define it: the least bytes that one rank must
 * send or receive, a second. So a rate holds for any number of ranks: an all-gather to `b` bytes takes b · (n
 * - 1) / n / rate.
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
  /** Nanoseconds of a collective in addition to its bytes' time. */
  readonly latency: number
  /** Count. Multiprocessors that a collective occupies while it runs. */
  readonly multiprocessors: number
}

/** Kernels and copies that each of `lanes` lanes of one device may hold when all are full. */
export const laneDepth = ({ queueDepth, queues }: Machine['device'], lanes: number): number =>
  Math.max(1, Math.floor(queueDepth / Math.max(1, Math.ceil(lanes / queues))))
