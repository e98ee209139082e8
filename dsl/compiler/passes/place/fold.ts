/** What a lane carries: copies to the device, copies back, collectives, or work. */
export type LaneKind = 'in' | 'out' | 'comm' | 'work'

/** A lane before folding into CUDA streams. `work` is nanoseconds a tick. */
export interface Logical {
  readonly name: string
  readonly kind: LaneKind
  readonly priority: number
  readonly work: number
}

const kindsFor = (lanes: readonly Logical[], most: number): readonly (readonly LaneKind[])[] => {
  const present = (kinds: readonly LaneKind[]): boolean => lanes.some(({ kind }) => kinds.includes(kind))
  const apart: readonly (readonly (readonly LaneKind[])[])[] = [
    [['in'], ['out'], ['comm'], ['work']],
    [['in', 'out'], ['comm'], ['work']],
    [['in', 'out', 'comm'], ['work']],
  ]
  for (const groups of apart) {
    const needed = groups.filter(present)
    if (needed.length <= most) return needed
  }
  return [['in', 'out', 'comm', 'work']]
}

/**
 * By lane: the lane whose CUDA stream it shares when there may be at most `most` streams. Kinds stay apart as
 * long as there are streams for them: first copies in, copies out, collectives and work; then copies,
 * collectives and work; then work and all that moves bytes. The streams of a kind go to its busiest lanes;
 * each other lane joins the least busy.
 */
export const fold = (lanes: readonly Logical[], most: number): Int32Array => {
  const folded = Int32Array.from(lanes.keys())
  if (lanes.length <= most) return folded
  const groups = kindsFor(lanes, most).map(kinds => {
    const members = [...lanes.keys()].filter(lane => kinds.includes(lanes[lane]!.kind))
    members.sort((a, b) => lanes[b]!.work - lanes[a]!.work || a - b)
    return { members, work: members.reduce((sum, lane) => sum + lanes[lane]!.work, 0), streams: 1 }
  })
  for (let spare = most - groups.length; spare > 0; spare--) {
    const wanting = groups.filter(({ members, streams }) => streams < members.length)
    if (wanting.length === 0) break
    wanting.reduce((busiest, group) =>
      group.work / group.streams > busiest.work / busiest.streams ? group : busiest,
    ).streams++
  }
  for (const { members, streams } of groups) {
    const kept = members.slice(0, streams)
    const load = new Map(kept.map(lane => [lane, lanes[lane]!.work]))
    for (const lane of members.slice(streams)) {
      const target = kept.reduce((least, other) => (load.get(other)! < load.get(least)! ? other : least))
      folded[lane] = target
      load.set(target, load.get(target)! + lanes[lane]!.work)
    }
  }
  return folded
}
