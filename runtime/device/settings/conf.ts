import * as E from 'fp-ts/lib/Either.js'
import type { Fault } from '../../../dsl/ir/fault.js'
import { nearest } from './checks.js'
import { type ConfContext, confKeyNames, confKeyOf, wholeOf } from './conf-keys.js'
import { type Setting, settingsOf, textOf } from './conf-syntax.js'
import type { AllocatorOptions } from './options.js'

/**
 * What one setting does: it sets an option (`honoured`), or Braid has nothing that it could change (`noted`).
 */
export interface AllocConfNote {
  readonly key: string
  readonly value: string
  readonly effect: 'honoured' | 'noted'
  readonly why: string
}

/** A setting that cannot be read (`BadOption`), or that Braid does not offer (`Unsupported`). */
export interface AllocConfFault extends Fault<'BadOption' | 'Unsupported'> {
  /** The setting's key; empty where the text has no key at that place. */
  readonly key: string
  /** The place in the text, in characters from 0. */
  readonly position: number
}

export interface AllocConf {
  readonly options: AllocatorOptions
  readonly notes: readonly AllocConfNote[]
}

/**
 * PyTorch's variables, in the order of PyTorch 2.14. Only the first one that is set counts, even if it is
 * empty.
 */
export const allocConfVariables = [
  'PYTORCH_CUDA_ALLOC_CONF',
  'PYTORCH_HIP_ALLOC_CONF',
  'PYTORCH_ALLOC_CONF',
] as const

/** All settings of a text, valid or not: what `braid doctor` shows. */
export const readAllocConf = (
  text: string,
  source = 'allocator settings',
): AllocConf & { readonly faults: readonly AllocConfFault[] } => {
  const { settings, problems } = settingsOf(text)
  const fault = (tag: AllocConfFault['_tag'], key: string, at: number, message: Message): AllocConfFault => ({
    _tag: tag,
    at: `${source}, character ${at + 1}`,
    subject: short(key),
    wanted: message.wanted,
    found: short(message.found),
    next: message.next,
    key,
    position: at,
  })
  const faults = problems.map(({ key, at, wanted, found }) =>
    fault('BadOption', key, at, {
      wanted,
      found,
      next: 'write settings as key:value,key:[name:value,name:value]',
    }),
  )
  const context = contextOf(settings)
  const last = new Map(settings.map(setting => [canonical(setting), setting]))
  const notes: AllocConfNote[] = []
  let options: AllocatorOptions = {}
  for (const setting of settings) {
    const { key, value } = setting
    const outcome = confKeyOf(key.text)?.read(value, context)
    if (outcome === undefined) {
      const near = nearest(key.text, confKeyNames)
      const next = near === undefined ? 'leave it out' : `write ${near}, or leave it out`
      const wanted = "a key of PyTorch's allocator settings"
      faults.push(fault('BadOption', key.text, key.at, { wanted, found: key.text, next }))
    } else if (outcome.effect === 'bad') {
      const { wanted, found, at } = outcome
      faults.push(
        fault('BadOption', key.text, at, { wanted, found, next: 'correct the setting, or leave it out' }),
      )
    } else if (outcome.effect === 'refused') {
      const { wanted, why, next } = outcome
      faults.push(fault('Unsupported', key.text, key.at, { wanted, found: `${textOf(value)}: ${why}`, next }))
    } else {
      const counts = last.get(canonical(setting)) === setting
      const note = { key: key.text, value: textOf(value), effect: outcome.effect, why: outcome.why }
      notes.push(
        counts ? note : { ...note, effect: 'noted', why: 'set again later in the text, where it counts' },
      )
      if (counts && outcome.effect === 'honoured') options = together(options, outcome.options)
    }
  }
  return { options, notes, faults: faults.sort((a, b) => a.position - b.position) }
}

/**
 * Reads settings in the syntax of PyTorch's `PYTORCH_ALLOC_CONF`: `key:value,key:[a:b,…]`, with `True` and
 * `False`. Returns every fault, or the options that the settings set; `notes` says what each setting does.
 */
export const parseAllocConf = (
  text: string,
  source?: string,
): E.Either<readonly AllocConfFault[], AllocConf> => {
  const { faults, ...conf } = readAllocConf(text, source)
  return faults.length > 0 ? E.left(faults) : E.right(conf)
}

export interface EnvironmentAllocConf {
  /** The variable that counts. */
  readonly variable: (typeof allocConfVariables)[number]
  readonly text: string
  /** Variables that are set too, but do not count because of this one. */
  readonly unread: readonly string[]
  readonly parsed: E.Either<readonly AllocConfFault[], AllocConf>
}

/** The settings of the environment, as PyTorch would find them; undefined where there are none. */
export const allocConfFromEnvironment = (
  env: Readonly<Record<string, string | undefined>> = process.env,
): EnvironmentAllocConf | undefined => {
  const [variable, ...unread] = allocConfVariables.filter(name => env[name] !== undefined)
  if (variable === undefined) return undefined
  const text = env[variable]!
  return { variable, text, unread, parsed: parseAllocConf(text, variable) }
}

interface Message {
  readonly wanted: string
  readonly found: string
  readonly next: string
}

const short = (text: string): string => (text.length > 160 ? `${text.slice(0, 160)}…` : text)

// Two names of one key are one setting.
const canonical = ({ key }: Setting): string => confKeyOf(key.text)?.names[0] ?? key.text

// Limits of other sizes depend on the size of a large segment, wherever in the text it is set.
const contextOf = (settings: readonly Setting[]): ConfContext => {
  const large = settings.filter(setting => canonical(setting) === 'large_segment_size_mb').at(-1)?.value
  const given = large?.kind === 'word' ? wholeOf(large.word.text) : undefined
  return { largeSegmentMb: given !== undefined && given > 10n ? given : 20n }
}

const together = (one: AllocatorOptions, more: AllocatorOptions): AllocatorOptions => ({
  ...one,
  ...more,
  ...(one.pinned || more.pinned ? { pinned: { ...one.pinned, ...more.pinned } } : {}),
})
