// `braid snapshot` as a user meets it.
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { AllocatorSnapshot } from '../../runtime/device/snapshot/snapshot.js'
import { braid, objectOf, scratch } from '../fixtures/command.js'
import { parseXml } from '../fixtures/xml.js'

const { folder, file } = scratch()
const hasPython = spawnSync('python3', ['--version']).status === 0

const MiB = 2 ** 20
const block = { release: 0, site: 0, uses: [], noted: [], lane: 0 }
const given: AllocatorSnapshot = {
  version: 1,
  device: { kind: 'cuda', ordinal: 0, name: 'NVIDIA H200', totalBytes: 150_119_120_896 },
  lanes: [
    { id: 0, name: 'copy', stream: 94_000_000_000_000, retired: false, done: 5, present: 6 },
    { id: 1, name: 'math', stream: 0, retired: false, done: 3, present: 5 },
  ],
  segments: [
    {
      ...{ address: 2 ** 40, totalSize: 1024 * MiB, mappedSize: 160 * MiB, lane: 0, sizes: 'large', pool: 0 },
      ...{ expandable: true, counter: 0, pinned: false },
      blocks: [
        { ...block, address: 2 ** 40, size: 100 * MiB, requested: 100 * MiB - 8, state: 'live', site: 1 },
        {
          ...{
            ...block,
            address: 2 ** 40 + 100 * MiB,
            size: 20 * MiB,
            requested: 20 * MiB,
            state: 'pending',
            site: 1,
          },
          ...{ release: 5, uses: [{ lane: 1, point: 4 }] },
        },
        {
          ...block,
          address: 2 ** 40 + 120 * MiB,
          size: 864 * MiB,
          requested: 0,
          state: 'unmapped',
          lane: -1,
        },
        { ...block, address: 2 ** 40 + 984 * MiB, size: 40 * MiB, requested: 0, state: 'free' },
      ],
    },
  ],
  history: [
    {
      ...{ action: 'segment_map', address: 2 ** 40, size: 120 * MiB, lane: 0, pool: 0 },
      ...{ timeMicroseconds: 1_790_000_000_000_000, site: 0, id: 0 },
    },
    {
      ...{ action: 'alloc', address: 2 ** 40, size: 100 * MiB, lane: 0, pool: 0 },
      ...{ timeMicroseconds: 1_790_000_000_000_010, site: 1, id: 1 },
    },
    {
      ...{ action: 'alloc', address: 2 ** 40 + 100 * MiB, size: 20 * MiB, lane: 0, pool: 0 },
      ...{ timeMicroseconds: 1_790_000_000_000_015, site: 1, id: 2 },
    },
    {
      ...{ action: 'use_recorded', address: 2 ** 40, size: 100 * MiB, lane: 1, pool: 0 },
      ...{ timeMicroseconds: 1_790_000_000_000_020, site: 0, id: 1 },
    },
    {
      ...{ action: 'free_requested', address: 2 ** 40 + 100 * MiB, size: 20 * MiB, lane: 0, pool: 0 },
      ...{ timeMicroseconds: 1_790_000_000_000_025, site: 0, id: 2 },
    },
  ],
  sites: [[], [{ filename: 'examples/<weights>.ts', line: 12, name: 'load' }]],
  stats: { retries: 0 },
  options: { expandable_segments: true },
}
const good = file('good.json', JSON.stringify(given))

describe('braid snapshot', () => {
  it('draws a picture in text', () => {
    const { status, stdout, stderr } = braid('snapshot', good)
    expect([status, stderr]).toEqual([0, ''])
    expect(stdout).toContain('cuda:0, NVIDIA H200, 139.81 GiB')
    expect(stdout).toMatch(/live +100\.00 MiB/)
    expect(stdout).toMatch(/math {2}1 use {2}of 20\.00 MiB {2}up to math@4; done up to @3/)
  })

  it('writes one object with --json: the totals and the picture', () => {
    const { status, stdout } = braid('snapshot', good, '--json')
    expect(status).toBe(0)
    expect(objectOf(stdout)).toMatchObject({
      as: 'text',
      device: { name: 'NVIDIA H200' },
      memory: { reserved: 160 * MiB, live: 100 * MiB, pending: 20 * MiB, free: 40 * MiB, longest: 40 * MiB },
      pinned: { reserved: 0, segments: 0 },
      records: 5,
      text: expect.stringContaining('pending memory waits for:'),
    })
  })

  it('writes an SVG', () => {
    const path = join(folder, 'picture.svg')
    const { status, stdout } = braid('snapshot', good, '--as', 'svg', '-o', path)
    expect([status, stdout.trim()]).toEqual([0, `${path}: the snapshot as svg`])
    const titles = parseXml(readFileSync(path, 'utf8')).filter(({ name }) => name === 'title')
    expect(titles.map(({ text }) => text).join('\n')).toContain('from: load (examples/<weights>.ts:12)')
  })

  it('gives the snapshot itself as json', () => {
    expect(objectOf(braid('snapshot', good, '--as', 'json', '--json').stdout)).toEqual(given)
    expect(JSON.parse(braid('snapshot', good, '--as', 'json').stdout)).toEqual(given)
  })

  it("writes a pickle that Python loads and that holds PyTorch's keys", context => {
    if (!hasPython) return context.skip('python3 is not installed')
    const path = join(folder, 'snapshot.pickle')
    expect(braid('snapshot', good, '--as', 'torch', '-o', path).stdout).toContain('pytorch.org/memory_viz')
    // The sums that PyTorch's `_memory_viz.py stats` asserts, and the keys that its `trace` and `segments`
    // read.
    const script = `
import pickle, sys
data = pickle.load(open(sys.argv[1], "rb"))
for seg in data["segments"]:
    assert sum(b["size"] for b in seg["blocks"]) == seg["total_size"]
    assert seg["segment_pool_id"] == (0, 0) and type(seg["segment_pool_id"]) is tuple
    for b in seg["blocks"]:
        assert 0 <= b["requested_size"] <= b["size"]
        frames = [(f["filename"].split("/")[-1], f["line"], f["name"]) for f in b["frames"]]
        print("stream_%d;seg_%d" % (seg["stream"], seg["address"]), b["state"], frames)
for e in data["device_traces"][0]:
    print(e["action"], e["addr"], e["size"], e["stream"], e["time_us"])
print(data["braid"]["traces"][0]["action"], data["segments"][0]["blocks"][1]["pending_uses"])`
    const { stdout, stderr } = spawnSync('python3', ['-c', script, path], { encoding: 'utf8' })
    expect(stderr).toBe('')
    expect(stdout.trim().split('\n')).toEqual([
      "stream_94000000000000;seg_1099511627776 active_allocated [('<weights>.ts', 12, 'load')]",
      "stream_94000000000000;seg_1099511627776 active_pending_free [('<weights>.ts', 12, 'load')]",
      'stream_94000000000000;seg_1100543426560 inactive []',
      'segment_map 1099511627776 125829120 94000000000000 1790000000000000',
      'alloc 1099511627776 104857600 94000000000000 1790000000000010',
      'alloc 1099616485376 20971520 94000000000000 1790000000000015',
      'free_requested 1099616485376 20971520 94000000000000 1790000000000025',
      "use_recorded [{'stream': 0, 'lane': 'math', 'event_point': 4, 'done': False}]",
    ])
  })

  it('refuses a pickle, runs nothing of it, and names the page that opens it', () => {
    const path = join(folder, 'torch.pickle')
    expect(braid('snapshot', good, '--as', 'torch', '-o', path).status).toBe(0)
    const { status, stdout, stderr } = braid('snapshot', path)
    expect([status, stdout]).toEqual([1, ''])
    expect(stderr).toMatch(/\[BadFile\]/)
    expect(stderr).toContain("Braid's own snapshot, as JSON")
    expect(stderr).toContain('pytorch.org/memory_viz')
    const owned = join(folder, 'owned')
    const code = `\x80\x04cposix\nsystem\n\x8c${String.fromCharCode(6 + owned.length)}touch ${owned}\x85R.`
    writeFileSync(join(folder, 'attack.pickle'), Buffer.from(code, 'latin1'))
    expect(braid('snapshot', join(folder, 'attack.pickle')).status).toBe(1)
    expect(existsSync(owned)).toBe(false)
  })

  it.each<[string, string[], RegExp]>([
    ['no file', ['snapshot'], /FILE is missing/],
    ['two files', ['snapshot', 'a', 'b'], /one FILE is wanted/],
    [
      'a form that there is none of',
      ['snapshot', good, '--as', 'png'],
      /--as: wanted text, svg, torch, json; found "png"/,
    ],
    ['a flag that there is none of', ['snapshot', good, '--colour'], /--colour/],
    ['the flag of pickles, which it does not read', ['snapshot', good, '--device', '0'], /--device/],
    ['a pickle for a terminal', ['snapshot', good, '--as', 'torch'], /give -o FILE/],
  ])('is misused with %s', (_, args, said) => {
    const { status, stdout, stderr } = braid(...args)
    expect([status, stdout]).toEqual([2, ''])
    expect(stderr).toMatch(said)
  })

  it('names every fault of a bad file, where it is, and does nothing', () => {
    const wrong = structuredClone(given) as unknown as {
      segments: { blocks: { state: unknown; lane: unknown }[] }[]
      device: { name: unknown }
    }
    wrong.device.name = 7
    wrong.segments[0]!.blocks[0]!.state = 'alive'
    wrong.segments[0]!.blocks[1]!.lane = 12
    const path = file('wrong.json', JSON.stringify(wrong))
    const { status, stdout, stderr } = braid('snapshot', path, '--json')
    expect([status, stdout]).toEqual([1, ''])
    const { errors } = JSON.parse(stderr) as {
      errors: { at: string; wanted: string; found: string; next: string }[]
    }
    expect(errors.map(({ at }) => at)).toEqual([
      `${path}: device.name`,
      `${path}: segments[0].blocks[0].state`,
      `${path}: segments[0].blocks[1].lane`,
    ])
    for (const error of errors) expect(Object.values(error)).not.toContain('')
  })

  it.each([
    ['that is not there', join(folder, 'none.json'), 'BadFile'],
    ['that is a folder', folder, 'BadFile'],
    ['that is empty', file('empty.json', ''), 'BadJson'],
    ['that is cut off', file('cut.json', JSON.stringify(given).slice(0, 900)), 'BadJson'],
    ['of a later format', file('later.json', JSON.stringify({ ...given, version: 2 })), 'BadVersion'],
    ['that is nested without end', file('deep.json', '['.repeat(100_000)), 'BadJson'],
    ['that is a picture', file('png.json', '\u0089PNG\r\n\u001a\n\0\0'), 'BadJson'],
  ])('refuses a file %s', (_, path, tag) => {
    const { status, stdout, stderr } = braid('snapshot', path)
    expect([status, stdout]).toEqual([1, ''])
    expect(stderr).toContain(`[${tag}]`)
    expect(stderr).not.toMatch(/\n\s+at /)
    expect(stderr).not.toContain('\u001b')
  })

  it('reports a file that it cannot write', () => {
    const { status, stderr } = braid('snapshot', good, '-o', join(folder, 'no', 'such', 'folder'))
    expect(status).toBe(1)
    expect(stderr).toContain('Give another path to -o')
  })
})
