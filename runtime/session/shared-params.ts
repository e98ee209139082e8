import { orThrow } from '../../dsl/index.js'
import { here } from '../../dsl/internal.js'
import { madeBy, reading } from '../device/arguments.js'
import { type Block, coreOf, endLoan, lendBlock, sharedHandle } from '../device/block.js'
import { Device } from '../device/device.js'
import { endingWith, quietly } from '../device/ending.js'
import { type Lane, makeLane } from '../device/lane.js'
import { type DeviceError, DisposedError } from '../errors.js'
import type { Safetensors } from '../files/safetensors.js'
import { untilAborted } from '../lending.js'
import { describe, type ValueSpec } from '../values.js'
import { isFile, type Opened, type ParamFile, sourcesFrom, sourcesOfFile } from './file-options.js'
import { notSharedValues, wrongParam } from './messages.js'
import { fillParam, type ParamSource, type ParamSources } from './params.js'
import { type Resident, SharedWrites } from './shared-writes.js'
import type { Sharing } from './sharing.js'

/** The sources and the blocks of shared parameters, for `open`. */
export let sourcesOf: (params: SharedParams) => ParamSources
/** The file that all sources of shared parameters are of. */
export let pathOf: (params: SharedParams) => string | undefined
/** The device of shared parameters; throws once they are disposed of. */
export let deviceOf: (params: SharedParams) => Device
/**
 * Runs an opening that uses the blocks of these parameters, by name: they are not freed before it ends. Every
 * block is filled. Where the signal is aborted before that, its reason is thrown; a block that is being filled
 * is there for the next opening.
 */
export let withBlocks: <A>(
  params: SharedParams,
  specs: readonly ValueSpec[],
  body: (blocks: ReadonlyMap<string, number>) => Promise<A>,
  signal?: AbortSignal,
) => Promise<A>

/** The part that a plan's session takes in writes, from when the plan is being opened. */
export let share: (params: SharedParams, has: (name: string) => boolean) => Sharing

/** What shared parameters are made of. */
interface Origin {
  readonly device: Device
  /** Whether the device is closed with them. */
  readonly ownsDevice: boolean
  readonly sources: ParamSources
  /** The file that all sources are of, and whether it is closed with them. */
  readonly file?: Safetensors
  readonly ownsFile?: boolean
}

/** What keeps a session, a tree or one of its executables from opening, as data. */
export class OpeningFailed extends Error {
  constructor(readonly failure: DeviceError) {
    super(failure.found, { cause: failure.cause })
  }
}

/**
 * Parameters that several sessions of a device share, from `params(device, source)`: each is on the device
 * once. Dispose of them when no further session is to be opened with them: sessions that are open keep the
 * memory of theirs until they close.
 */
export class SharedParams implements AsyncDisposable {
  readonly #origin: Origin
  readonly #device: Device
  readonly #lane: Lane
  /** What was written last, or what they were made of. */
  readonly #sources: Record<string, ParamSource>
  /**
   * By name, from when the first session that needs a parameter opens: its type, and its way to the device.
   */
  readonly #types = new Map<string, ValueSpec>()
  readonly #putting = new Map<string, Promise<Resident>>()
  readonly #resident = new Map<string, Resident>()
  readonly #openings = new Set<Promise<unknown>>()
  readonly #lent = new Map<string, Block>()
  readonly #writes: SharedWrites
  readonly #closing = new AbortController()
  /** Aborted when they are disposed of and no opening waits for the values that are being filled. */
  readonly #unwanted = new AbortController()
  #disposing: Promise<void> | undefined

  constructor(origin: Origin) {
    madeBy(Device.is(origin?.device), 'SharedParams', 'params(device, source)')
    this.#origin = origin
    this.#device = origin.device
    this.#lane = origin.device.lane({ name: 'params' })
    this.#sources = { ...origin.sources }
    this.#writes = new SharedWrites({
      params: this,
      sources: this.#sources,
      lane: this.#lane,
      types: this.#types,
      resident: this.#resident,
      staging: spec => this.#staging(spec),
      drop: (name, why) => this.#drop(name, why),
      closing: this.#closing.signal,
      alive: () => this.#alive(),
    })
  }

  static {
    sourcesOf = params => params.#sources
    pathOf = params => params.#origin.file?.path
    deviceOf = params => {
      params.#alive()
      return params.#device
    }
    withBlocks = async (params, specs, body, signal) => {
      params.#alive()
      const opening = untilAborted(params.#blocks(specs, signal), signal).then(body)
      params.#openings.add(opening)
      try {
        return await opening
      } finally {
        params.#openings.delete(opening)
      }
    }
    share = (params, has) => params.#writes.share(has)
  }

  static is(value: unknown): value is SharedParams {
    return typeof value === 'object' && value !== null && #device in value
  }

  get device(): Device {
    return this.#device
  }
  get names(): readonly string[] {
    return Object.keys(this.#sources)
  }
  get disposed(): boolean {
    return this.#disposing !== undefined
  }

  /**
   * The block of a parameter, which any lane of the device may read at once. Sessions read it too, so lanes
   * do not write it; `write` comes after the uses that lanes have marked, and lanes that read the value await
   * it. The block stays lent until the parameters are disposed of: `free` throws, and its memory goes to
   * nobody before the uses that lanes marked. Rejects with a TypeError where no session has opened with it.
   */
  async block(name: string): Promise<Block> {
    this.#alive()
    const resident = await this.#putting.get(name)?.catch(() => undefined)
    if (resident === undefined)
      throw new TypeError(
        `params.block: wanted a parameter that is on the device; found ${JSON.stringify(name)}, which no ` +
          `session has opened with (there are ${this.names.join(', ')}). Next: open a session that needs it`,
      )
    this.#alive()
    const known = this.#lent.get(name)
    if (known !== undefined) return known
    const core = coreOf(resident.block)
    const lent = lendBlock(core, {
      handle: sharedHandle(resident.block),
      address: resident.block.address,
      size: resident.block.size,
      bytes: resident.spec.bytes,
      lane: makeLane(core, -1, 0n, `parameter ${name}`, 'session'),
      lender: ['a parameter that sessions share', 'dispose of the parameters: await using'],
    })
    this.#lent.set(name, lent)
    return lent
  }

  /**
   * Sets a parameter, or several, for all sessions that read them: after all ticks that any of these sessions
   * has submitted, before all others, and in the same order for each. No tick sees a part of a write. The
   * sessions hold back their next ticks until the write has ended; sessions that read none of the names go
   * on. Sessions that open later begin with the values. A value is an array, copied at once; or a function
   * that fills the bytes, where the write comes after what it returns has settled. Rejects with a
   * `RunError`, or with a `DisposedError` once the parameters are disposed of; where the device fails in a
   * write, the sessions are over.
   */
  write(name: string, value: ParamSource): Promise<void>
  write(values: ParamSources): Promise<void>
  async write(first: string | ParamSources, value?: ParamSource): Promise<void> {
    const at = here().toString()
    this.#alive()
    if (typeof first !== 'string' && (typeof first !== 'object' || first === null))
      throw notSharedValues(at, first)
    const given = typeof first === 'string' ? [[first, value] as const] : Object.entries(first)
    await this.#writes.write(given, at)
  }

  /** Frees the parameters, each as soon as no session uses it. Waits for sessions that are being opened. */
  [Symbol.asyncDispose](): Promise<void> {
    this.#disposing ??= this.#dispose()
    return this.#disposing
  }

  async #dispose(): Promise<void> {
    this.#closing.abort(disposed())
    await Promise.allSettled(this.#openings)
    this.#unwanted.abort(disposed())
    await Promise.allSettled(this.#putting.values())
    await this.#writes.last
    for (const name of [...this.#resident.keys()]) this.#drop(name, 'these parameters were disposed of')
    if (!this.#device.closed) this.#lane[Symbol.dispose]()
    const { file, ownsFile, ownsDevice } = this.#origin
    if (ownsFile) await file?.close()
    if (ownsDevice) await this.#device.close()
  }

  async #blocks(
    specs: readonly ValueSpec[],
    signal: AbortSignal | undefined,
  ): Promise<ReadonlyMap<string, number>> {
    const blocks = new Map<string, number>()
    for (const spec of specs) {
      signal?.throwIfAborted()
      const { block } = await this.#put(spec)
      blocks.set(spec.name, sharedHandle(block))
    }
    return blocks
  }

  /** Puts a parameter on the device, once. After a failure the next session that needs it tries again. */
  async #put(spec: ValueSpec): Promise<Resident> {
    const known = this.#putting.get(spec.name)
    const put = known ?? this.#fill(spec)
    if (known === undefined) {
      this.#putting.set(spec.name, put)
      this.#types.set(spec.name, spec)
    }
    try {
      const resident = await put
      if (resident.spec.bytes !== spec.bytes || resident.spec.dtype !== spec.dtype)
        throw new OpeningFailed(
          wrongParam(spec.name, {
            wanted: `${spec.dtype}[${spec.shape.join(', ')}]`,
            found: `${resident.spec.dtype}[${resident.spec.shape.join(', ')}], as another session has it`,
            next: 'give it another name, or open the plan with parameters of its own',
          }),
        )
      return resident
    } catch (error) {
      if (known === undefined && this.#putting.get(spec.name) === put) {
        const failed = await put.then(
          () => false,
          () => true,
        )
        if (failed) this.#forget(spec.name)
      }
      throw error
    }
  }

  async #fill(spec: ValueSpec): Promise<Resident> {
    const staging = this.#staging(spec)
    return endingWith(
      () => this.#fillFrom(spec, staging),
      () => staging.free(),
    )
  }

  async #fillFrom(spec: ValueSpec, staging: Block): Promise<Resident> {
    const { name } = spec
    let block: Block | undefined
    try {
      // A write changes the block of a parameter that is resident, and the source of one that is not yet.
      for (let source: ParamSource | undefined; source !== this.#sources[name]; ) {
        source = this.#sources[name]!
        const bytes = new Uint8Array(staging.view(), 0, spec.bytes)
        const failure = await fillParam(bytes, source, spec, 'params', this.#unwanted.signal)
        if (this.#device.closed) throw closedDevice()
        if (failure) throw new OpeningFailed(failure)
        block ??= this.#device.malloc(staging.bytes, this.#lane, { site: `params ${name}` })
        this.#lane.copy(block, staging)
        await this.#lane.synchronize()
      }
      const resident = { spec, block: block! }
      this.#resident.set(name, resident)
      return resident
    } catch (error) {
      quietly(() => block?.free())
      throw error
    }
  }

  #staging({ name, bytes }: ValueSpec): Block {
    return this.#device.pinned(Math.max(1, bytes), this.#lane, { site: `params ${name}: staging` })
  }

  #forget(name: string): void {
    this.#putting.delete(name)
    this.#resident.delete(name)
    this.#types.delete(name)
  }

  /** Frees a parameter that is on the device: open sessions keep the memory. */
  #drop(name: string, why: string): void {
    const { block } = this.#resident.get(name)!
    const lent = this.#lent.get(name)
    this.#lent.delete(name)
    this.#forget(name)
    if (lent !== undefined) endLoan(lent, why, 'make them again, and before that call')
    if (!block.disposed) block.free()
  }

  #alive(): void {
    if (this.#disposing !== undefined) throw disposed()
  }
}

const disposed = (): DisposedError =>
  new DisposedError('this set of parameters', 'make it again: await params(device, source)')

const closedDevice = (): DisposedError =>
  new DisposedError('the device of params', 'open one again: Device.open(name)')

/** The source of each parameter; or a TypeError that names the first value that is none. */
const checkedSources = (source: ParamSources): ParamSources => {
  const given = reading('params', () => Object.entries(source))
  for (const [name, value] of given)
    if (typeof value !== 'function' && !ArrayBuffer.isView(value))
      throw new TypeError(
        `params.${name}: wanted a typed array, or a function that fills the bytes; ` +
          `found ${describe(value)}. Next: correct it, or leave it out`,
      )
  return Object.fromEntries(given)
}

const openedDevice = async (
  device: Device | (string & {}),
): Promise<Pick<Origin, 'device' | 'ownsDevice'>> => {
  if (!Device.is(device)) return { device: orThrow(await Device.open(device)()), ownsDevice: true }
  if (device.closed) throw closedDevice()
  return { device, ownsDevice: false }
}

/**
 * Parameters by name that several sessions of one device share: `open(plan, { params: weights })`. An array
 * is as the plan's parameter; a function fills the bytes when the first session that needs it opens, since
 * the type is the plan's. A file has each parameter under its name: `safetensors(path)` is opened here, and
 * closed when the parameters are disposed of; a file that is open must stay so until the last session has
 * opened with them. `device`: an open Device, or a name. Throws a TypeError for sources of other kinds, and
 * what opening the file or the device throws.
 */
export const params = async (
  device: Device | (string & {}),
  source: ParamSources | ParamFile,
): Promise<SharedParams> => {
  if ((typeof source !== 'object' && typeof source !== 'function') || source === null)
    throw new TypeError(
      `params: wanted an object of values by name, or safetensors(path); found ${describe(source)}. ` +
        'Next: pass { w: … }',
    )
  const ownsFile = typeof source === 'function'
  const given = ownsFile ? orThrow(await source()) : source
  const file = isFile(given) ? given : undefined
  try {
    const sources = file === undefined ? checkedSources(given as ParamSources) : sourcesOfFile(file)
    const opened = await openedDevice(device)
    return new SharedParams({ ...opened, sources, ...(file === undefined ? {} : { file, ownsFile }) })
  } catch (error) {
    if (ownsFile) await file?.close()
    throw error
  }
}

/**
 * The values of a plan's parameters: by name; or a file that has each under its name, `safetensors(path)`; or
 * those that sessions share, from `params(device, …)`.
 */
export type GivenParams = ParamSources | ParamFile | SharedParams

/** The source of each parameter that was given; and the path of the file that all are of. */
export const sourcesIn = (given: Opened<GivenParams> = {}): ParamSources =>
  SharedParams.is(given) ? sourcesOf(given) : sourcesFrom(given)
export const pathIn = (given: Opened<GivenParams> = {}): string | undefined =>
  SharedParams.is(given) ? pathOf(given) : isFile(given) ? given.path : undefined
