// PyTorch's option string: its meaning does not depend on blanks and order; each error names the key and the
// place; nothing throws.

import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import { orThrow } from '../../../dsl/index.js'
import {
  type AllocConf,
  allocConfFromEnvironment,
  parseAllocConf,
  readAllocConf,
} from '../../../runtime/device/settings/conf.js'
import { confKeyNames } from '../../../runtime/device/settings/conf-keys.js'
import { type AllocatorOptions, allocatorOptions } from '../../../runtime/device/settings/options.js'
import { runs } from '../../fixtures/runs.js'

const MiB = 2 ** 20

interface Meant {
  readonly text: string
  readonly options?: AllocatorOptions
}

const flag = (meaning?: (on: boolean) => AllocatorOptions): fc.Arbitrary<Meant> =>
  fc.boolean().map(on => ({ text: on ? 'True' : 'False', ...(meaning && { options: meaning(on) }) }))
const whole = (
  least: number,
  most: number,
  meaning: (mebibytes: number) => AllocatorOptions,
): fc.Arbitrary<Meant> =>
  fc.integer({ min: least, max: most }).map(mb => ({ text: String(mb), options: meaning(mb) }))
const share = (meaning: (share: number) => AllocatorOptions): fc.Arbitrary<Meant> =>
  fc
    .double({ min: 0.001, max: 0.999, noNaN: true })
    .map(number => ({ text: String(number), options: meaning(number) }))
const words = (...texts: string[]): fc.Arbitrary<Meant> => fc.constantFrom(...texts.map(text => ({ text })))

const powers = (most: number) => fc.integer({ min: 0, max: most }).map(power => 2 ** power)
const steps = fc.oneof(fc.constant(0), powers(31))
const entries = fc.array(fc.record({ name: fc.oneof(fc.constant('>'), powers(20).map(String)), steps }), {
  maxLength: 20,
})
type Entry = { readonly name: string; readonly steps: number }

/** The rule for one interval: the last entry that reaches it counts. */
const stepsAt = (interval: number, list: readonly Entry[]): number => {
  const indexOf = (name: string) => Math.min(15, Math.log2(Number(name)))
  const firstNamed = list.findIndex(({ name }) => name !== '>')
  const reaches = (at: number): boolean => {
    const { name } = list[at]!
    if (name !== '>') return interval === indexOf(name) || (at === firstNamed && interval < indexOf(name))
    const before = list.slice(0, at).findLast(entry => entry.name !== '>')
    return interval > (before === undefined ? 0 : indexOf(before.name))
  }
  const last = list.map((_, at) => at).findLast(reaches)
  return last === undefined ? 0 : list[last]!.steps
}

const listText = (list: readonly Entry[]): string =>
  `[${list.map(entry => `${entry.name}:${entry.steps}`).join(',')}]`

// The table of the reference, row by row. Sizes here are those that any size of a large segment lets pass.
const table: Readonly<Record<string, fc.Arbitrary<Meant>>> = {
  backend: words('native'),
  large_segment_size_mb: whole(11, 512, mb => ({ largeSegment: mb * MiB })),
  max_split_size_mb: whole(512, 2 ** 30, mb => ({ maxSplit: mb * MiB })),
  max_non_split_rounding_mb: whole(512, 2 ** 30, mb => ({ maxNonSplitRounding: mb * MiB })),
  garbage_collection_threshold: share(collectAbove => ({ collectAbove })),
  expandable_segments: flag(expandable => ({ expandable })),
  release_lock_on_cudamalloc: flag(),
  release_lock_on_hipmalloc: flag(),
  graph_capture_record_stream_reuse: flag(),
  per_process_memory_fraction: share(fraction => ({ fraction })),
  throw_on_cudamalloc_oom: flag(refuseEarly => ({ refuseEarly })),
  pinned_use_cuda_host_register: flag(),
  pinned_use_hip_host_register: flag(),
  pinned_num_register_threads: words('1', '2', '64', '128'),
  pinned_use_background_threads: flag(),
  pinned_reserve_segment_size_mb: whole(1, 4096, mb => ({ pinned: { reserveFirst: mb * MiB } })),
  pinned_max_round_threshold_mb: whole(0, 4096, mb => ({ pinned: { roundUpTo: mb * MiB } })),
  pinned_max_cached_size_mb: whole(0, 4096, mb => ({ pinned: { cacheUpTo: mb * MiB } })),
  pinned_free_catch_all: flag(),
  expandable_segments_reserve: words('0.5', '40G', '1e-1', '.25g'),
  expandable_segments_reserve_by_class: words('[]', '[capture:0.25,workspace:40G]'),
  svm: words('False'),
}
// Left out of the table: the first key has its own properties below, the second is always refused.
const others = ['roundup_power2_divisions', 'roundup_bypass_threshold_mb']
const aliases = [
  ['release_lock_on_cudamalloc', 'release_lock_on_hipmalloc'],
  ['pinned_use_cuda_host_register', 'pinned_use_hip_host_register'],
]

interface Written extends Meant {
  readonly key: string
}

const settings: fc.Arbitrary<readonly Written[]> = fc
  .shuffledSubarray(Object.keys(table))
  .filter(keys => !aliases.some(pair => pair.every(key => keys.includes(key))))
  .chain(keys => fc.tuple(...keys.map(key => table[key]!.map(meant => ({ key, ...meant })))))

const compact = (written: readonly Written[]): string =>
  written.map(({ key, text }) => `${key}:${text}`).join(',')

/**
 * Puts blanks between characters; also maps an index of the compact text to the new index.
 */
const spaced = (
  text: string,
  gaps: readonly string[],
): { readonly text: string; at(offset: number): number } => {
  const gap = (index: number) => (gaps.length === 0 ? '' : gaps[index % gaps.length]!)
  const pieces = Array.from(text, (character, index) => gap(index) + character)
  return {
    text: pieces.join(''),
    at: offset => pieces.slice(0, offset).join('').length + gap(offset).length,
  }
}
const gaps = fc.array(fc.constantFrom('', '', '', ' ', '\t', '\n', ' \r\f\v '), { maxLength: 7 })

const optionsOf = (written: readonly Written[]): AllocatorOptions => {
  const all = written.map(({ options }) => options ?? {})
  const pinned = all.filter(options => options.pinned)
  return {
    ...Object.assign({}, ...all),
    ...(pinned.length > 0 ? { pinned: Object.assign({}, ...pinned.map(options => options.pinned)) } : {}),
  }
}

const right = (text: string): AllocConf => orThrow(parseAllocConf(text))

describe('what a text of settings means', () => {
  test('does not depend on order, blanks, or a last comma', () => {
    fc.assert(
      fc.property(settings, gaps, fc.boolean(), (written, blanks, comma) => {
        const text = compact(written) + (comma && written.length > 0 ? ',' : '')
        const { options, notes } = right(spaced(text, blanks).text)
        expect(options).toEqual(optionsOf(written))
        expect(notes.map(({ key, value, effect }) => ({ key, value, effect }))).toEqual(
          written.map(({ key, text, options }) => ({
            key,
            value: text,
            effect: options ? 'honoured' : 'noted',
          })),
        )
        for (const { why } of notes) expect(why).not.toBe('')
      }),
    )
  })

  test('is accepted by the allocator', () => {
    fc.assert(
      fc.property(settings, written => {
        const { options } = right(compact(written))
        const resolved = orThrow(allocatorOptions({}, options))
        const { pinned, ...rest } = options
        expect(resolved).toMatchObject(rest)
        if (pinned?.cacheUpTo !== undefined) expect(resolved.pinned.cacheUpTo).toBe(pinned.cacheUpTo)
        expect(resolved.pinned.roundUpTo).toBeLessThanOrEqual(resolved.pinned.cacheUpTo)
        // The same options are accepted when they are given directly.
        expect(allocatorOptions(options)).toEqual(E.right(resolved))
      }),
    )
  })

  test('is that of the last of several settings of one key, under either of its names', () => {
    fc.assert(
      fc.property(fc.array(fc.boolean(), { minLength: 2, maxLength: 6 }), flags => {
        const text = flags.map(on => `expandable_segments:${on ? 'True' : 'False'}`).join(',')
        const { options, notes } = right(text)
        expect(options).toEqual({ expandable: flags.at(-1) })
        expect(notes.map(note => note.effect)).toEqual(
          flags.map((_, at) => (at === flags.length - 1 ? 'honoured' : 'noted')),
        )
      }),
    )
    const [first, second] = right('release_lock_on_hipmalloc:True,release_lock_on_cudamalloc:False').notes
    expect(first!.why).toMatch(/again later/)
    expect(second!.why).not.toMatch(/again later/)
  })

  test('every key of the table is known, and no other is', () => {
    expect([...confKeyNames].sort()).toEqual([...Object.keys(table), ...others].sort())
  })

  test('an empty text sets nothing', () => {
    for (const text of ['', ' \n\t'])
      expect(parseAllocConf(text)).toEqual(E.right({ options: {}, notes: [] }))
  })

  test('sizes larger than any machine mean no bound', () => {
    expect(right('max_split_size_mb:18446744073709551615').options).toEqual({
      maxSplit: Number.POSITIVE_INFINITY,
    })
    expect(right(`max_split_size_mb:${'0'.repeat(1e5)}64`).options).toEqual({ maxSplit: 64 * MiB })
  })

  test('a larger segment raises the lower limit of other sizes, wherever it stands', () => {
    const under = ['max_split_size_mb:40', 'max_non_split_rounding_mb:40']
    for (const setting of under) {
      for (const text of [`large_segment_size_mb:64,${setting}`, `${setting},large_segment_size_mb:64`]) {
        const faults = readAllocConf(text).faults
        expect(faults).toMatchObject([
          { key: setting.split(':')[0], found: '40', position: text.indexOf('40') },
        ])
        expect(faults[0]!.wanted).toContain('64')
      }
      expect(readAllocConf(`large_segment_size_mb:11,${setting}`).faults).toEqual([])
      const twice = `large_segment_size_mb:64,large_segment_size_mb:32,${setting}`
      expect(readAllocConf(twice)).toMatchObject({ faults: [], options: { largeSegment: 32 * MiB } })
    }
  })
})

describe('roundup_power2_divisions', () => {
  const resolved = (text: string): readonly number[] =>
    orThrow(allocatorOptions({}, right(`roundup_power2_divisions:${text}`).options)).divisions

  test('fills the sixteen intervals by the rule', () => {
    fc.assert(
      fc.property(entries, gaps, (list, blanks) => {
        const text = spaced(listText(list), blanks).text
        expect(resolved(text)).toEqual(Array.from({ length: 16 }, (_, interval) => stepsAt(interval, list)))
      }),
    )
  })

  test('a single number counts everywhere', () => {
    fc.assert(
      fc.property(steps, count => {
        expect(resolved(String(count))).toEqual(new Array(16).fill(count))
      }),
    )
  })

  test.each([
    ['[256:1,512:2,1024:4,>:8]', [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8]],
    ['[64:8,128:2,256:4,512:2,1024:4,>:1]', [8, 8, 8, 8, 8, 8, 8, 2, 4, 2, 4, 1, 1, 1, 1, 1]],
    ['[64:2,256:4]', [2, 2, 2, 2, 2, 2, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0]],
    ['[>:8]', [0, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8]],
    ['[65536:4]', [4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4]],
    ['[256:1,>:2,]', [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2]],
    ['[]', new Array(16).fill(0)],
  ])('%s', (text, intervals) => {
    expect(resolved(text)).toEqual(intervals)
  })
})

describe('what is wrong with a text of settings', () => {
  const wrongValues: readonly (readonly [key: string, value: string])[] = [
    ['backend', 'jemalloc'],
    ['expandable_segments', 'true'],
    ['expandable_segments', '1'],
    ['release_lock_on_cudamalloc', 'none'],
    ['pinned_use_cuda_host_register', 'none'],
    ['pinned_use_background_threads', 'TRUE'],
    ['pinned_free_catch_all', 'no'],
    ['throw_on_cudamalloc_oom', 'yes'],
    ['graph_capture_record_stream_reuse', 'toString'],
    ['max_split_size_mb', '2'],
    ['max_split_size_mb', '-1'],
    ['max_split_size_mb', '64.5'],
    ['max_split_size_mb', '64MB'],
    ['max_split_size_mb', '18446744073709551616'],
    ['max_split_size_mb', '9'.repeat(3000)],
    ['max_non_split_rounding_mb', '19'],
    ['large_segment_size_mb', '10'],
    ['garbage_collection_threshold', '0'],
    ['garbage_collection_threshold', '1.0'],
    ['garbage_collection_threshold', '1.2'],
    ['garbage_collection_threshold', 'half'],
    ['garbage_collection_threshold', 'NaN'],
    ['per_process_memory_fraction', '1.01'],
    ['per_process_memory_fraction', '-0.1'],
    ['per_process_memory_fraction', 'Infinity'],
    ['pinned_num_register_threads', 'none'],
    ['pinned_num_register_threads', '0'],
    ['pinned_num_register_threads', '3'],
    ['pinned_num_register_threads', '256'],
    ['pinned_num_register_threads', '1024'],
    ['pinned_reserve_segment_size_mb', '0'],
    ['pinned_max_cached_size_mb', 'all'],
    ['pinned_max_round_threshold_mb', '0x10'],
    ['expandable_segments_reserve', '0'],
    ['expandable_segments_reserve', '40M'],
    ['expandable_segments_reserve_by_class', '0.5'],
    ['roundup_power2_divisions', '3'],
    ['roundup_power2_divisions', '4294967296'],
    ['svm', 'maybe'],
  ]

  test.each(wrongValues)('%s:%s', (key, value) => {
    fc.assert(
      fc.property(settings, fc.nat(), gaps, (written, place, blanks) => {
        const good = written.filter(setting => setting.key !== key && setting.key !== 'large_segment_size_mb')
        const at = place % (good.length + 1)
        const all = [...good.slice(0, at), { key, text: value }, ...good.slice(at)]
        const offset = compact(all.slice(0, at + 1)).length - value.length
        const { text, at: moved } = spaced(compact(all), blanks)
        const { faults } = readAllocConf(text)
        expect(faults).toHaveLength(1)
        expect(faults[0]).toMatchObject({ _tag: 'BadOption', key, position: moved(offset) })
        expect(faults[0]!.wanted).not.toBe('')
        expect(faults[0]!.at).toContain(`character ${moved(offset) + 1}`)
      }),
      { numRuns: runs(20) },
    )
  })

  test.each([
    ['roundup_power2_divisions:[256:3]', '3'],
    ['roundup_power2_divisions:[100:2]', '100'],
    ['roundup_power2_divisions:[0:2]', '0'],
    ['roundup_power2_divisions:[256:2,<:4]', '<'],
    ['expandable_segments_reserve_by_class:[a:1,b:x]', 'x'],
  ])('in a list: %s', (text, found) => {
    expect(readAllocConf(text).faults).toMatchObject([
      { key: text.slice(0, text.indexOf(':')), found, position: text.indexOf(found, text.indexOf('[')) },
    ])
  })

  test.each([
    ['expandable_segments', 'expandable_segments', 19, 'the end'],
    ['expandable_segments:', 'expandable_segments', 20, 'the end'],
    ['expandable_segments=True', 'expandable_segments=True', 24, 'the end'],
    [':True', '', 0, ':'],
    [',', '', 0, ','],
    ['svm:False,,svm:False', '', 10, ','],
    ['svm:,pinned_free_catch_all:True', 'svm', 4, ','],
    ['svm:False:True', 'svm', 9, ':'],
    ['roundup_power2_divisions:[256:1', 'roundup_power2_divisions', 31, 'the end'],
    ['roundup_power2_divisions:[256]', 'roundup_power2_divisions', 29, ']'],
    ['roundup_power2_divisions:[256:1 512:2]', 'roundup_power2_divisions', 35, ':'],
    ['roundup_power2_divisions:[[256:1]]', 'roundup_power2_divisions', 26, '['],
    ['roundup_power2_divisions:[256:1]]', 'roundup_power2_divisions', 32, ']'],
    ['max_split_size_mb:[64:1]', 'max_split_size_mb', 18, 'a list'],
  ])('in the syntax: %s', (text, key, position, found) => {
    const { faults } = readAllocConf(text)
    expect(faults).toHaveLength(1)
    expect(faults[0]).toMatchObject({ _tag: 'BadOption', key, position, found })
  })

  test('a misspelt key gives the nearest key, and its place', () => {
    const slips = fc.record({
      key: fc.constantFrom(...confKeyNames.filter(name => name.length > 4 && !/cuda|hip/.test(name))),
      at: fc.nat(),
      character: fc.constantFrom('x', '_', 'Q', '9', 'é'),
      kind: fc.constantFrom('change', 'drop', 'add'),
    })
    fc.assert(
      fc.property(slips, ({ key, at, character, kind }) => {
        const place = at % key.length
        const rest = key.slice(kind === 'add' ? place : place + 1)
        const slip = key.slice(0, place) + (kind === 'drop' ? '' : character) + rest
        fc.pre(!confKeyNames.includes(slip))
        const text = `svm:False,${slip}:1`
        const { faults } = readAllocConf(text)
        expect(faults).toMatchObject([{ key: slip, found: slip, position: 10 }])
        expect(faults[0]!.next).toContain(`write ${key}`)
      }),
    )
  })

  test('every fault is reported, and the valid settings are still read', () => {
    const { faults, notes, options } = readAllocConf(
      'foo:1,svm:True,backend:cudaMallocAsync,expandable_segments:False,bar',
    )
    expect(faults.map(({ _tag, key, position }) => ({ _tag, key, position }))).toEqual([
      { _tag: 'BadOption', key: 'foo', position: 0 },
      { _tag: 'Unsupported', key: 'svm', position: 6 },
      { _tag: 'Unsupported', key: 'backend', position: 15 },
      { _tag: 'BadOption', key: 'bar', position: 68 },
    ])
    expect(notes).toMatchObject([{ key: 'expandable_segments', effect: 'honoured' }])
    expect(options).toEqual({ expandable: false })
  })

  test('a setting that Braid does not offer is refused with the reason', () => {
    for (const [text, reason] of [
      ['backend:cudaMallocAsync', /uses/],
      ['backend:hipMallocAsync', /uses/],
      ['svm:True', /Intel/],
      ['roundup_bypass_threshold_mb:64', /dropped/],
    ] as const) {
      const { faults } = readAllocConf(text)
      expect(faults).toMatchObject([{ _tag: 'Unsupported', position: 0 }])
      expect(faults[0]!.found).toMatch(reason)
      expect(faults[0]!.next).not.toBe('')
    }
  })

  test('no text throws, and each fault stands in the text', () => {
    const piece = fc.oneof(
      fc.constantFrom(':', ',', '[', ']', '>', ' ', 'True', '0', '64', '0.5', '__proto__', 'constructor'),
      fc.constantFrom(...confKeyNames),
      fc.string(),
    )
    const text = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.array(piece, { maxLength: 30 }).map(pieces => pieces.join('')),
    )
    fc.assert(
      fc.property(text, given => {
        const { faults, notes, options } = readAllocConf(given)
        const parsed = parseAllocConf(given)
        expect(parsed).toEqual(faults.length > 0 ? E.left(faults) : E.right({ options, notes }))
        for (const fault of faults) {
          expect(fault.position).toBeGreaterThanOrEqual(0)
          expect(fault.position).toBeLessThanOrEqual(given.length)
          expect(given.replace(/[ \t\n\v\f\r]/g, '')).toContain(fault.key)
          for (const said of [fault.wanted, fault.found, fault.next]) expect(said).not.toBe('')
        }
        expect(E.isRight(allocatorOptions({}, options))).toBe(true)
      }),
      { numRuns: runs(500) },
    )
  })

  test('a long text takes time in proportion', () => {
    const begun = performance.now()
    for (const text of [
      '['.repeat(2e5),
      'a'.repeat(2e5),
      ','.repeat(2e5),
      'svm:False,'.repeat(2e4),
      'a:[b:'.repeat(4e4),
    ])
      readAllocConf(text)
    expect(performance.now() - begun).toBeLessThan(5000)
  })
})

describe('the environment', () => {
  const names = ['PYTORCH_CUDA_ALLOC_CONF', 'PYTORCH_HIP_ALLOC_CONF', 'PYTORCH_ALLOC_CONF']

  test('only the first variable that is set counts, even if it is empty', () => {
    const value = fc.option(fc.constantFrom('', 'svm:False', 'expandable_segments:True', 'nonsense'), {
      nil: undefined,
    })
    fc.assert(
      fc.property(fc.tuple(value, value, value), values => {
        const env = Object.fromEntries(names.map((name, at) => [name, values[at]]))
        const found = allocConfFromEnvironment(env)
        const set = names.filter(name => env[name] !== undefined)
        if (set.length === 0) {
          expect(found).toBeUndefined()
          return
        }
        const text = env[set[0]!]!
        expect(found).toEqual({
          variable: set[0],
          text,
          unread: set.slice(1),
          parsed: parseAllocConf(text, set[0]),
        })
      }),
    )
  })

  test('a fault names the variable', () => {
    const found = allocConfFromEnvironment({ PYTORCH_ALLOC_CONF: 'svm:perhaps' })
    expect(found?.parsed).toMatchObject({ left: [{ at: 'PYTORCH_ALLOC_CONF, character 5' }] })
  })
})
