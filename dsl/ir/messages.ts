import type { Fault } from './fault.js'
import { shown, shownLines } from './show.js'

// The title of each kind of error, by its tag; spec/types/titles.test-d.ts has the tags that must have one.
const titles = {
  NotAFlow: 'A flow is expected here',
  ForeignFlow: 'This flow belongs to another graph',
  ShapeMismatch: 'The shapes do not fit',
  DTypeMismatch: 'The element types do not fit',
  PlaceMismatch: 'The value is in the wrong place',
  BadAttribute: 'Invalid argument',
  NoGradient: 'No gradient',
  UnboundSymbol: 'A symbol has no size',
  UnboundDelay: 'This state has no next value',
  Cycle: 'A cycle crosses no delay',
  RateMismatch: 'Flows of different rates meet',
  UnknownRate: 'The rate of this flow is unknown',
  LongPeriod: 'A tick would take too many values',
  UseAfterDonate: 'A value is used after its memory was given away',
  DuplicateName: 'This name is taken',
  BadDimension: 'Invalid dimension',
  NoOutputs: 'The graph has no outputs',
  BadOption: 'Invalid option',
  BadArgument: 'Invalid argument',
  WrongDevice: 'This belongs to another device',
  Reentrant: 'The device waits for the function that calls it',
  SourceFailed: "A pool's own allocator failed",
  OverBudget: 'The plan does not fit into the memory it may use',
  Unsupported: 'This is not supported',
  NoAddon: 'No native addon can be loaded',
  NoDriver: 'There is no working NVIDIA driver',
  NoDevice: 'There is no such device',
  MissingLibrary: 'A library that the plan needs is missing',
  OutOfMemory: 'The device has too little memory',
  KernelFailed: 'A kernel could not be made ready',
  DriverFailed: 'The driver failed',
  TooManyLanes: 'The device has no more lanes',
  BadPlan: 'This plan cannot be run',
  Unrepeatable: 'A source gives other values when it is asked again',
  MissingParam: 'A parameter has no value',
  WrongParam: 'This value does not fit the parameter',
  MissingState: 'A state has no value',
  WrongState: 'This value does not fit the state',
  MissingReference: 'This kernel has no reference for the host',
  CannotFollow: 'This plan cannot take the place of the one that runs',
  WrongFeeds: 'These are not the feeds of the graph',
  WrongValue: 'A feed gave a value that its input cannot hold',
  FeedFailed: 'A feed failed',
  FeedFull: 'A feed gave more than there is room for',
  TickFailed: 'The device failed in a tick',
  AlreadyRunning: 'The session is running already',
  SessionFailed: 'The session failed in an earlier run',
  UnknownName: 'Nothing has this name',
  WrongWrite: 'This value cannot be written',
  CopyFailed: 'A copy between two ticks failed',
  Cancelled: 'Opening was cancelled',
  BadProgram: 'This is not a program that can be run',
  BadFile: 'This file cannot be used',
  Unfinished: 'The program waits for something that never comes',
  BadMachine: 'This does not describe a machine',
  NoBenchmarks: 'There are no benchmarks here',
  NotBuilt: 'The native addon was not built',
  CheckFailed: 'The plan does not yield what the graph means',
  Unverified: 'The compiler made a plan that breaks a law, and will not run it: this is a bug in Braid',
  WouldDeadlock: 'This call would wait for JavaScript, which waits for it',
  StaleHandle: 'The value of this handle is gone',
  NotASuccessor: 'This plan may not come after the one before it',
  TooManyKept: 'No more values of this output may exist at once',
  ArenaTooSmall: 'The arena is too small for this launch',
  NotMade: 'An executable could not be made',
  NotLaunched: 'This launch could not begin',
  UnknownLayout: 'The tree has no layout of this number',
  TreeFailed: 'A launch of the tree has failed',
  QueueFull: 'Launches that wait take too much memory',
  Reentered: 'A launch was made from inside of a launch',
  UnknownPlan: 'The tree has no plan of this name',
  UnknownPort: 'The plan has no input or output of this name',
  MixedShapes: 'Plans of one name differ in more than their shapes',
  NotPlanned: 'The buffers of this plan have no fixed places',
  UnsupportedPlan: 'This plan cannot be part of a tree',
  BadTrace: 'This is not a trace that can be read',
  BadJson: 'This is not JSON that can be read',
  BadVersion: 'This version of the format is unknown',
  Missing: 'A field is missing',
  WrongType: 'A field has the wrong type',
  OutOfRange: 'A number is out of range',
  UnknownId: 'Nothing has this id',
  TooMany: 'A list is too long',
  TooLong: 'A text is too long',
  Unexpected: 'This does not belong here',
  BadCommand: 'Invalid command',
  BadAlias: 'Invalid view of a buffer',
  BadKernel: 'The kernel contradicts itself',
  Extent: 'The kernel would reach outside of its buffers',
  Overwrite: 'A run would write over bytes that it reads',
  Unwritten: 'Bytes that nothing has written would be read',
  CannotRead: 'The file cannot be read',
  CannotWrite: 'The file cannot be written',
  Truncated: 'The file is shorter than its header says',
  BadHeader: 'The header of the file cannot be read',
  BadTensor: 'An entry of the header is invalid',
  Overlap: 'Two tensors share bytes',
  Hole: 'Bytes of the file belong to no tensor',
  Mismatch: 'The file has no such tensor',
  Misuse: 'The command line was used wrongly',
} as const

export type Titled = keyof typeof titles

/** A field of an error beside its label. Further lines of a log are indented: none is a line of the report. */
const field = (label: string, text: string): string =>
  `  ${label.padEnd(6)}  ${shownLines(text).replaceAll('\n', `\n${' '.repeat(10)}`)}`

const sentence = (text: string): string => {
  const trimmed = text.trim()
  if (trimmed === '') return ''
  // Code is written as it is.
  const code = /^[a-z]\w*\(|^export /.test(trimmed)
  const start = code ? trimmed : trimmed.charAt(0).toUpperCase() + trimmed.slice(1)
  return code || /[.!?]$/.test(start) ? start : `${start}.`
}

/** Parts of a number of bytes that are listed. */
const mostParts = 12

const grouped = (bytes: number): string =>
  `${String(bytes).replace(/\B(?=(\d{3})+$)/g, ',')} bytes`.padStart('1,234,567,890 bytes'.length)

/**
 * Any error as text: its title, place and subject on the first line, then the expected value, the actual
 * value, and the next step.
 */
export const render = (fault: Fault): string => {
  const { _tag, at, subject, wanted, found, next, parts } = fault
  const title = Object.hasOwn(titles, _tag) ? titles[_tag as Titled] : _tag
  // Shown once where both are the same, as an option's name; an unknown place is not shown.
  const place = [at === 'unknown' ? '' : at, subject].filter(part => part !== '' && part !== undefined)
  const where = shown([...new Set(place)].join(': '))
  const lines = [`${where ? `${where}: ` : ''}${title}. [${_tag}]`]
  if (wanted) lines.push(field('wanted', wanted))
  if (found) lines.push(field('found', found))
  for (const { bytes, name, because, at } of parts?.slice(0, mostParts) ?? [])
    lines.push(
      `          ${grouped(bytes)}  ${shown([name, because].filter(Boolean).join(': ') + (at && ` (${at})`))}`,
    )
  const others = parts?.slice(mostParts) ?? []
  if (others.length > 0) {
    const sum = others.reduce((total, { bytes }) => total + bytes, 0)
    lines.push(`          ${grouped(sum)}  in ${others.length} parts more`)
  }
  if (next) lines.push(field('next', sentence(next)))
  return lines.join('\n')
}

/** Several errors, one after the other. */
export const renderAll = (faults: readonly Fault[]): string => faults.map(render).join('\n')
