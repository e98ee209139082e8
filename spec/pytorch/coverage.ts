// The cases of the list that are no test, or only in part, each with its reason. Every other case is a test
// whose title begins with its number. `coverage.test.ts` compares the two, so no case is counted twice or
// left out.

export interface Elsewhere {
  readonly number: number
  /** The case, in the words of the list. */
  readonly case: string
  readonly why: string
  /** Which cases stand for it. */
  readonly where: string
}

/** A case that is tested in part: the part that is not tested. */
export interface Partly {
  readonly number: number
  readonly not: string
  readonly why: string
}

/** The number of cases, and of lines in the contract of `recordUse`. */
export const cases = 153
export const contractLines = 9

export const elsewhere: readonly Elsewhere[] = [
  {
    number: 79,
    case: 'regions of compiled code are numbered in the trace',
    why: 'a plan is no code that allocates: a session takes its blocks when it is opened, under its own name',
    where: 'labels: 75 and 76; plans: explain',
  },
]

export const partly: readonly Partly[] = [
  {
    number: 26,
    not: 'an assertion that fails on a GPU',
    why: 'it ends CUDA for the process (docs/internals/decisions/sessions.md, 17), so the host device stands for it',
  },
  {
    number: 65,
    not: 'two threads',
    why: 'each thread has lanes of its own, and which of two threads takes the next segment depends on their timing; that what they share is right is tested in one-memory.test.ts',
  },
  {
    number: 69,
    not: 'background threads and registered memory',
    why: 'settings for them are read and noted: Braid has nothing that they could change',
  },
  {
    number: 61,
    not: 'statistics that stay as they are with caching off',
    why: 'the figures of a device count what it holds, whether or not it keeps what is freed',
  },
  {
    number: 70,
    not: 'two threads that open two devices',
    why: 'three worker threads use one device at once in one-memory.test.ts; two devices have no memory in common',
  },
  {
    number: 77,
    not: 'leaving out actions by name',
    why: 'a history is plain data, which a reader can filter',
  },
  {
    number: 78,
    not: 'frames of C++ and of TorchScript',
    why: 'allocations come from TypeScript, whose frames are kept',
  },
  {
    number: 90,
    not: 'threads',
    why: 'a pool belongs to the thread that made it; the memory that threads share gives every pool its number under one lock',
  },
  {
    number: 94,
    not: 'threads',
    why: 'a pool belongs to the thread that made it: another thread cannot name it, so nothing of that thread can go there',
  },
  {
    number: 99,
    not: 'a warning',
    why: 'a graph without nodes is a value that says so; a warning would go to where nobody asks',
  },
  {
    number: 101,
    not: 'random numbers after a failed capture',
    why: 'random numbers are of plans, whose counter is a state of the session: no capture of a lane reaches it',
  },
  {
    number: 103,
    not: 'the corruption that a shared pool allows',
    why: 'that graphs of one pool use the same bytes is tested; what they write over each other is up to their timing',
  },
  {
    number: 112,
    not: 'calls of other threads',
    why: 'they are the driver’s to refuse, and tested there on both devices (native/test/graphs/captures_test.cc)',
  },
  {
    number: 122,
    not: 'states of a pool that are taken and set',
    why: 'the offsets of a plan are data, so nothing is restored: what is tested is that memory lies where it lay',
  },
]
