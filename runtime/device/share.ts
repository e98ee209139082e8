// A process has one memory for each device, which devices of every thread and sessions share.
import * as E from 'fp-ts/lib/Either.js'
import { type HostOptions, type NativeCachingDevice, native } from '../addon.js'
import { nativeOptions } from './device-options.js'
import { allocatorOptions, type ResolvedAllocatorOptions } from './settings/options.js'

const resolved = allocatorOptions(undefined, {})
export const defaultOptions: ResolvedAllocatorOptions = E.isRight(resolved)
  ? resolved.right
  : (undefined as never)

/**
 * Opens a share of the memory of `host`, `host:N` or `cuda:N`. A share joins the memory that is open on the
 * device with the same options, or with any where `asItIs`; else it is the first of a new one. A host device
 * that is described by options is a machine of its own and is never joined. Throws the addon's failure.
 */
export const openShare = (
  name: string,
  host: HostOptions,
  options: ResolvedAllocatorOptions = defaultOptions,
  asItIs = true,
): NativeCachingDevice => {
  const [kind, ordinal = '0'] = name.split(':')
  const number = Number(ordinal)
  const [device, pinned] = nativeOptions(options)
  const where = kind === 'host' ? (number === 0 ? host : { ...host, ordinal: number }) : number
  const alone = kind === 'host' && Object.values(host).some(value => value !== undefined)
  return alone
    ? native().openCaching(where, device, pinned)
    : native().openCaching(
        where,
        device,
        pinned,
        `${kind}:${number}`,
        JSON.stringify(options, finite),
        asItIs,
      )
}

/** The options of the memory that the share is of. */
export const settingsOf = (
  { settings }: NativeCachingDevice,
  given: ResolvedAllocatorOptions,
): ResolvedAllocatorOptions =>
  settings === '' ? given : (JSON.parse(settings, infinite) as ResolvedAllocatorOptions)

// JSON has no Infinity, and no option is a text of this form.
const unlimited = 'Infinity'
const finite = (_key: string, value: unknown): unknown =>
  value === Number.POSITIVE_INFINITY ? unlimited : value
const infinite = (_key: string, value: unknown): unknown =>
  value === unlimited ? Number.POSITIVE_INFINITY : value
