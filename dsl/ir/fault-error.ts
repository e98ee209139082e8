import type { Fault } from './fault.js'

/** A fault that is thrown: an Error whose fields are the fault's. */
export abstract class FaultError<Tag extends string = string> extends Error implements Fault<Tag> {
  readonly _tag: Tag
  readonly at: string
  readonly subject: string
  readonly wanted: string
  readonly found: string
  readonly next: string

  /** `message`: the text that `messages.ts` makes of the fault. */
  constructor(
    message: string,
    { _tag, at, subject, wanted, found, next }: Fault<Tag>,
    options?: ErrorOptions,
  ) {
    super(message, options)
    this._tag = _tag
    this.at = at
    this.subject = subject
    this.wanted = wanted
    this.found = found
    this.next = next
  }
}
