// How sizes and names read in both pictures. Names come from users and files: nothing of them may steer a terminal or a parser.
import type { AllocatorSnapshot, LaneId, SnapshotDevice } from './snapshot-data.js'

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']

/** `1.50 MiB`; whole bytes below 1 KiB. */
export const sizeOf = (bytes: number): string => {
  let unit = 0
  while (unit < units.length - 1 && bytes >= 2 ** (10 * (unit + 1))) unit++
  return unit === 0 ? `${bytes} B` : `${(bytes / 2 ** (10 * unit)).toFixed(2)} ${units[unit]}`
}

/** A name on one line, without control characters, without those that turn the direction of writing, and not too long. */
export const nameOf = (name: string, most = 60): string => {
  const visible = name.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu, unseen => {
    const code = unseen.codePointAt(0)!.toString(16).toUpperCase()
    return `\\u{${code}}`
  })
  const characters = Array.from(visible)
  return characters.length <= most ? visible : `${characters.slice(0, most - 1).join('')}…`
}

export const plural = (count: number, one: string): string => `${count} ${one}${count === 1 ? '' : 's'}`

/** `cuda:0, NVIDIA H200, 139.81 GiB`, as far as it is known. */
export const deviceOf = ({ kind, ordinal, name, totalBytes }: SnapshotDevice): string =>
  [kind === 'cuda' ? `cuda:${ordinal}` : 'host', nameOf(name), totalBytes > 0 ? sizeOf(totalBytes) : '']
    .filter(part => part !== '')
    .join(', ')

/** What lanes and sites are called. */
export class Called {
  private readonly names: ReadonlyMap<LaneId, string>
  constructor(private readonly snapshot: AllocatorSnapshot) {
    this.names = new Map(snapshot.lanes.map(({ id, name }) => [id, name]))
  }

  lane(id: LaneId): string {
    if (id < 0) return 'no lane'
    const name = this.names.get(id) ?? ''
    return name === '' ? `lane ${id}` : nameOf(name, 32)
  }

  /** `copy@41`: a point of a lane; an event of the caller's has none that is known. */
  point(id: LaneId, point: number): string {
    return id < 0 ? "an event of the caller's" : `${this.lane(id)}@${point}`
  }

  /** The innermost frame. */
  site(site: number, most = 60): string {
    const frame = this.snapshot.sites[site]?.[0]
    if (!frame) return 'site not known'
    const where = frame.line > 0 ? `${frame.filename}:${frame.line}` : frame.filename
    const words = [frame.name, frame.name !== '' && where !== '' ? `(${where})` : where].filter(
      word => word !== '',
    )
    return words.length === 0 ? 'site not known' : nameOf(words.join(' '), most)
  }
}
