/**
 * The form of every error that Braid reports as data: the kind, the place, the expected and the actual value,
 * and the next step. `messages.ts` makes its text.
 */
export interface Fault<Tag extends string = string> {
  readonly _tag: Tag
  /**
   * The place: the user's file and line (`examples/x.ts:12:9`), a plan's command (`commands[17]`), or an
   * option's name.
   */
  readonly at: string
  /** The name of the node, lane, buffer or option with the error. */
  readonly subject: string
  readonly wanted: string
  readonly found: string
  /** What to do next, as an instruction. */
  readonly next: string
  /**
   * Where `found` is a number of bytes: its parts, which add up to it; the largest buffers first, then parts
   * that belong to no buffer.
   */
  readonly parts?: readonly FaultPart[]
}

/**
 * Some of the bytes of an error about memory: the name of their owner, the user's line that caused them
 * (empty: no line did), and the reason.
 */
export interface FaultPart {
  readonly name: string
  readonly bytes: number
  readonly at: string
  readonly because: string
}
