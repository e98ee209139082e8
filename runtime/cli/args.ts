import { type ParseArgsConfig, parseArgs } from 'node:util'
import { Misuse } from './io.js'

type Options = NonNullable<ParseArgsConfig['options']>
type Common = { readonly json: { type: 'boolean' }; readonly help: { type: 'boolean'; short: 'h' } }
// Named, since a declaration file cannot name types that Node does not export.
type Parsed<O extends Options> = ReturnType<
  typeof parseArgs<{ args: string[]; options: O & Common; allowPositionals: true; strict: true }>
>

/** The flags and words after a verb. Any other argument is a Misuse, with the usage. */
export const parse = <const O extends Options>(
  args: readonly string[],
  options: O,
  usage: string,
): Parsed<O> => {
  try {
    return parseArgs({
      args: withValues(args, options),
      options: { ...options, json: { type: 'boolean' }, help: { type: 'boolean', short: 'h' } },
      allowPositionals: true,
      strict: true,
    })
  } catch (error) {
    throw new Misuse(`${(error as Error).message.split('\n')[0]}\nusage: ${usage}`)
  }
}

// `--ticks -1` is an invalid number and is reported as such; parseArgs takes it for two flags.
const withValues = (args: readonly string[], options: Options): string[] => {
  const whole: string[] = []
  for (let i = 0; i < args.length; i++) {
    const [flag, next] = [args[i]!, args[i + 1]]
    const valued = flag.startsWith('--') && options[flag.slice(2)]?.type === 'string'
    if (valued && next !== undefined && /^-[\d.]/.test(next)) {
      whole.push(`${flag}=${next}`)
      i++
    } else whole.push(flag)
  }
  return whole
}

/** The one positional argument of a verb. */
export const oneWord = (words: readonly string[], what: string, usage: string): string => {
  const [word, extra] = words
  if (word === undefined || word === '') throw new Misuse(`${what} is missing\nusage: ${usage}`)
  if (extra !== undefined)
    throw new Misuse(`one ${what} is wanted; "${extra}" is one too many\nusage: ${usage}`)
  return word
}

const scales: Readonly<Record<string, number>> = { '': 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 }

/** `1048576`, `512KiB`, `1.5 GiB` → bytes. */
export const size = (text: string, flag: string): number => {
  const match = /^(\d+(?:\.\d+)?)\s*(KiB|MiB|GiB)?$/.exec(text.trim())
  const value = match ? Number(match[1]) * scales[match[2] ?? '']! : Number.NaN
  if (!Number.isSafeInteger(value) || value < 1)
    throw new Misuse(`${flag}: wanted bytes as a number from 1, or with KiB, MiB or GiB; found "${text}"`)
  return value
}

export const whole = (text: string, flag: string, least: number): number => {
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN
  if (!Number.isSafeInteger(value) || value < least)
    throw new Misuse(`${flag}: wanted a whole number from ${least}; found "${text}"`)
  return value
}

export const oneOf = <const A extends string>(text: string, flag: string, choices: readonly A[]): A => {
  if (!(choices as readonly string[]).includes(text))
    throw new Misuse(`${flag}: wanted ${choices.join(', ')}; found "${text}"`)
  return text as A
}

/** `--memory`: bytes, or one of the two words. */
export const memory = (text: string): number | 'fast' | 'small' =>
  text === 'fast' || text === 'small' ? text : size(text, '--memory')

/** `--device` of a plan for one device or for several: `cuda:0,cuda:1`. */
export const devices = (text: string): string | readonly string[] => {
  const names = text.split(',').map(name => name.trim())
  if (names.length === 1 && /^(auto|host|cuda:\d{1,4})$/.test(names[0]!)) return names[0]!
  if (!names.every(name => /^(host|host:\d{1,4}|cuda:\d{1,4})$/.test(name)))
    throw new Misuse(
      `--device: wanted auto, host or cuda:N, or several such as cuda:0,cuda:1; found "${text}"`,
    )
  return names
}

export const device = (text: string): string => {
  if (!/^(auto|host|cuda:\d{1,4})$/.test(text))
    throw new Misuse(`--device: wanted auto, host or cuda:N; found "${text}"`)
  return text
}
