import { limits } from './limits.js'
import { readDType } from './load-kernel.js'
import { type CollectiveSpec, collectiveKinds, collectiveReductions, type PlanCommunicator } from './plan.js'
import type { Reader } from './reader.js'

const reducing: readonly CollectiveSpec['kind'][] = ['allReduce', 'reduceScatter', 'reduce']
const rooted: readonly CollectiveSpec['kind'][] = ['broadcast', 'reduce', 'gather', 'scatter']
const paired: readonly CollectiveSpec['kind'][] = ['send', 'recv']

/**
 * A communicator by its own fields. Whether its ranks exist, each in one group, follows only from the plans
 * of all ranks (verifyRanks).
 */
export const readCommunicator = (r: Reader, value: unknown, index: number): PlanCommunicator => {
  const at = `communicators[${index}]`
  const given = r.object(value, at)
  const id = r.ownIndex(r.field(given, 'id'), at, index)
  const name = r.string(r.field(given, 'name'), `${at}.name`, limits.name)
  const groups = r.field(given, 'groups')
  const size = r.field(given, 'size')
  if (groups === undefined)
    return size === undefined
      ? { id, name }
      : { id, name, size: r.integer(size, `${at}.size`, 1, limits.ranks) }
  const read = r
    .list(groups, `${at}.groups`, limits.ranks)
    .map((group, g) =>
      r
        .list(group, `${at}.groups[${g}]`, limits.ranks)
        .map((value, i) => r.integer(value, `${at}.groups[${g}][${i}]`, 0, limits.ranks - 1)),
    )
  return { id, name, groups: read }
}

/** A collective by its own fields: those that its kind has, and no others are kept. */
export const readCollective = (
  r: Reader,
  value: unknown,
  at: string,
  communicators: number,
): CollectiveSpec => {
  const spec = r.object(value, at)
  const get = (key: string) => r.field(spec, key)
  const kind = r.oneOf(get('kind'), `${at}.kind`, collectiveKinds)
  const place = (key: string) => r.integer(get(key), `${at}.${key}`, 0, limits.ranks - 1)
  const pairs = () =>
    r.list(get('pairs'), `${at}.pairs`, limits.ranks).map((value, i): [number, number] => {
      const where = `${at}.pairs[${i}]`
      const pair = r.list(value, where, 2)
      return [
        r.integer(pair[0], `${where}[0]`, 0, limits.ranks - 1),
        r.integer(pair[1], `${where}[1]`, 0, limits.ranks - 1),
      ]
    })
  return {
    kind,
    communicator: r.id(get('communicator'), `${at}.communicator`, communicators, 'communicator'),
    count: r.integer(get('count'), `${at}.count`, 1, limits.bytes),
    dtype: readDType(r, get('dtype'), `${at}.dtype`),
    ...(reducing.includes(kind) ? { how: r.oneOf(get('how'), `${at}.how`, collectiveReductions) } : {}),
    ...(rooted.includes(kind) ? { root: place('root') } : {}),
    ...(paired.includes(kind) ? { peer: place('peer') } : {}),
    ...(kind === 'permute' ? { pairs: pairs() } : {}),
  }
}
