// perfetto/trace/track_event/*.proto: the numbers of the fields that Braid writes and reads.
export const packetOfTrace = 1
export const packet = { timestamp: 8, sequence: 10, event: 11, flags: 13, track: 60 } as const
export const track = { uuid: 1, name: 2, process: 3, parent: 5, counter: 8 } as const
export const event = {
  type: 9,
  track: 11,
  annotation: 4,
  categories: 22,
  name: 23,
  flow: 47,
  endFlow: 48,
  counter: 30,
} as const
export const annotation = { name: 10, int: 4, text: 6 } as const
export const begin = 1
export const end = 2

/** Lanes are tracks from this one on. */
export const firstLane = 16
