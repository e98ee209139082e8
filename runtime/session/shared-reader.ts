import type { Plan, PlanBuffer } from '../../dsl/ir/plan.js'
import type { NativeFailure } from '../addon.js'
import type { RunError } from '../errors.js'
import type { ValueSpec } from '../values.js'
import type { Keeper } from './kept.js'
import { copyFailed } from './messages.js'
import type { OpenPlan } from './open-plan.js'
import { paramsByName, putValue } from './params.js'
import { specOf } from './ports.js'
import type { Reader, SharedWrite, Sharing } from './sharing.js'

const buffersOf = (plan: Plan, name: string): readonly PlanBuffer[] =>
  paramsByName(plan).find(([{ name: each }]) => each === name) ?? []

/** A session's part in the writes to parameters that it shares with others. */
export class SharedReader implements Reader {
  readonly #joined = new Map<object, Sharing>()

  constructor(private readonly keeper: Pick<Keeper, 'open' | 'over' | 'between' | 'broken'>) {}

  get over(): boolean {
    return this.keeper.over
  }

  /** The session runs this plan, or is going over to it. Its first tick sees what was written meanwhile. */
  join(open: OpenPlan): void {
    const { sharing, plan } = open
    if (sharing === undefined) return
    this.#joined.set(sharing.params, sharing)
    const names = paramsByName(plan).map(([{ name }]) => name)
    for (const write of sharing.join(this, names.filter(sharing.has)))
      this.between(() => this.#catchUp(open, write)).catch(() => undefined)
  }

  /** The session is closed. */
  leave(): void {
    for (const sharing of this.#joined.values()) sharing.leave(this)
  }

  between<A>(body: (next: number) => Promise<A>): Promise<A> {
    return this.keeper.between(body)
  }

  specOf(params: object, name: string): ValueSpec | undefined {
    const { plan, sharing } = this.keeper.open
    const [buffer] = sharing?.params === params && sharing.has(name) ? buffersOf(plan, name) : []
    return buffer && specOf(buffer)
  }

  async copyIn(params: object, name: string, bytes: Uint8Array): Promise<void> {
    if (this.specOf(params, name) !== undefined) await this.#copyInto(this.keeper.open, name, bytes)
  }

  broken(failure: RunError): void {
    this.keeper.broken(failure)
  }

  async #copyInto({ plan, program, shared }: Keeper['open'], name: string, bytes: Uint8Array): Promise<void> {
    const own = buffersOf(plan, name).filter(({ id }) => !shared.has(id))
    await putValue(program, own, bytes)
  }

  async #catchUp(open: OpenPlan, { values, ended }: SharedWrite): Promise<void> {
    const how = await ended
    if (how === 'refused' || this.over) return
    if (how !== 'written') return this.broken(how)
    for (const { name, bytes } of values)
      try {
        if (bytes !== undefined && open.sharing?.has(name)) await this.#copyInto(open, name, bytes)
      } catch (failure) {
        this.broken(copyFailed(open.plan.name, `write ${name}`, failure as NativeFailure, 'the session'))
      }
  }
}
