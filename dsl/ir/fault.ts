/**
 * The shape of every error that Braid reports as data: what kind, where, what was wanted, what was found,
 * what to do. `messages.ts` makes the text of an error from it.
 */
export interface Fault<Tag extends string = string> {
  readonly _tag: Tag
  /**
   * The user's file and line (`examples/x.ts:12:9`), a plan's command (`commands[17]`), an option's name:
   * whatever the user can go to.
   */
  readonly at: string
  /** The node, lane, buffer or option that is at fault, by name. */
  readonly subject: string
  readonly wanted: string
  readonly found: string
  /** What to do next, as an instruction. */
  readonly next: string
  /**
   * Where what was found is a number of bytes: what they are, to the last of them; the largest buffers first,
   * then what is no buffer's.
   */
  readonly parts?: readonly FaultPart[]
}

/**
 * Some of the bytes of an error about memory: the name of their owner, the user's line that asked for them
 * (empty: no line did), and why they are there.
 */
export interface FaultPart {
  readonly name: string
  readonly bytes: number
  readonly at: string
  readonly because: string
}
