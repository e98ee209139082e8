// What PyTorch's viewer (torch/utils/viz/MemoryViz.js, "Allocator State History") and torch/cuda/_memory_viz.py read of a
// snapshot, and where they would stop with an exception. Written from what they read; none of their code.
import { Tuple } from '../../runtime/allocator/snapshot/pickle.js'
import type { TorchSnapshot } from '../../runtime/allocator/snapshot/snapshot.js'

type Fields = Readonly<Record<string, unknown>>

const integer = (value: unknown) => Number.isSafeInteger(value)
const word = (value: unknown) => typeof value === 'string'
const flag = (value: unknown) => typeof value === 'boolean'
const list = (value: unknown) => Array.isArray(value)
const pair = (value: unknown) => value instanceof Tuple && value.items.length === 2 && value.items.every(integer)

const segment = {
  ...{ device: integer, address: integer, total_size: integer, allocated_size: integer, active_size: integer },
  ...{ requested_size: integer, stream: integer, segment_type: (v: unknown) => v === 'small' || v === 'large' },
  ...{ segment_pool_id: pair, is_expandable: flag, frames: list, blocks: list },
}
const state = (v: unknown) => ['active_allocated', 'active_pending_free', 'inactive'].includes(v as string)
const block = { address: integer, size: integer, requested_size: integer, state, frames: list }
const record = { action: word, size: integer, stream: integer, time_us: integer, compile_context: word, frames: list }
const more = { user_metadata: word, pool_id: pair }
const frame = { filename: word, line: integer, name: word }
const settings = {
  ...{ PYTORCH_CUDA_ALLOC_CONF: word, max_split_size: integer, expandable_segments: flag },
  ...{ garbage_collection_threshold: (v: unknown) => typeof v === 'number', pinned_num_register_threads: integer },
  ...{
    release_lock_on_cudamalloc: flag,
    pinned_use_cuda_host_register: flag,
    roundup_power2_divisions: Object.isExtensible,
  },
}
const known = [
  ...['alloc', 'free_requested', 'free_completed', 'segment_alloc', 'segment_free', 'segment_map'],
  ...['segment_unmap', 'snapshot', 'oom', 'annotate'],
]

/** Every key that the two read, by name and type; the places where one is missing or of another type. */
export const unread = (torch: TorchSnapshot): readonly string[] => {
  const wrong: string[] = []
  const check = (value: object, keys: Readonly<Record<string, (value: unknown) => boolean>>, at: string) => {
    for (const [key, is] of Object.entries(keys)) if (!is((value as Fields)[key])) wrong.push(`${at}.${key}`)
  }
  check(
    torch,
    { segments: list, device_traces: list, external_annotations: list, host_segments: list, host_traces: list },
    '',
  )
  check(torch.allocator_settings, settings, 'allocator_settings')
  const frames = (value: { readonly frames: readonly object[] }, at: string) => {
    for (const each of value.frames) check(each, frame, `${at}.frames`)
  }
  for (const each of [...torch.segments, ...torch.host_segments]) {
    check(each, segment, 'segment')
    frames(each, 'segment')
    for (const b of each.blocks) {
      check(b, block, 'block')
      frames(b, 'block')
    }
  }
  for (const each of [...torch.device_traces.flat(), ...torch.host_traces]) {
    check(each, { ...record, ...more, [each.action === 'oom' ? 'device_free' : 'addr']: integer }, 'record')
    if (!known.includes(each.action)) wrong.push(`record.action ${each.action}`)
    frames(each, 'record')
  }
  return wrong
}

/** Plays the trace of each device back to its beginning, as the viewer does; throws where the viewer would. */
export const play = (torch: TorchSnapshot): void => {
  // It offers devices that have records or segments, and takes the first without asking whether there is one.
  if (!torch.device_traces.some((trace, device) => trace.length > 0 || torch.segments.some(s => s.device === device)))
    throw new Error('no device to show')
  torch.device_traces.forEach((records, device) => {
    // The viewer takes the free that completes at once for one record.
    const trace: { action: string; addr: number; size: number; stream: number }[] = []
    for (const { action, addr = 0, size, stream } of records) {
      const last = trace.at(-1)
      if (action === 'free_completed' && last?.action === 'free_requested' && last.addr === addr) last.action = 'free'
      else trace.push({ action, addr, size, stream })
    }
    const here = torch.segments.filter(each => each.device === device)
    const ranges = here.map(({ address, total_size, stream }) => ({ addr: address, size: total_size, stream }))
    ranges.sort((a, b) => a.addr - b.addr)
    const blocks = new Set<number>()
    for (const { address, state } of here.flatMap(each => each.blocks)) if (state !== 'inactive') blocks.add(address)
    const draw = (at: string) => {
      for (const addr of blocks)
        if (!ranges.some(range => addr >= range.addr && addr < range.addr + range.size))
          throw new Error(`${at}: block ${addr} is in no segment`)
    }
    draw('the end')
    for (let i = trace.length - 1; i >= 0; i--) {
      const { action, addr, size, stream } = trace[i]!
      const end = addr + size
      if (action === 'alloc') blocks.delete(addr)
      else if (action === 'free' || action === 'free_completed') blocks.add(addr)
      else if (action === 'free_requested' && !blocks.has(addr)) throw new Error(`record ${i}: frees what is not there`)
      else if (action === 'segment_alloc') {
        const at = ranges.findIndex(range => range.addr === addr)
        // It takes the last one away where none begins there, and whatever was joined to it where one does.
        if (at < 0 || ranges[at]!.size !== size) throw new Error(`record ${i}: a segment that is not there`)
        ranges.splice(at, 1)
      } else if (action === 'segment_free') {
        ranges.push({ addr, size, stream })
        ranges.sort((a, b) => a.addr - b.addr)
      } else if (action === 'segment_map') {
        const at = ranges.findIndex(range => range.addr <= addr && end <= range.addr + range.size)
        if (at < 0) throw new Error(`record ${i}: maps what is not there`)
        const [old] = ranges.splice(at, 1)
        const parts = [
          { ...old!, size: addr - old!.addr },
          { ...old!, addr: end, size: old!.addr + old!.size - end },
        ]
        ranges.splice(at, 0, ...parts.filter(part => part.size > 0))
      } else if (action === 'segment_unmap') {
        const before = ranges.findIndex(range => range.addr + range.size === addr && range.stream === stream)
        const after = ranges.findIndex(range => range.addr === end && range.stream === stream)
        const added = { addr, size, stream }
        if (before >= 0) Object.assign(added, { addr: ranges[before]!.addr, size: ranges[before]!.size + added.size })
        if (after >= 0) added.size += ranges[after]!.size
        const kept = ranges.filter((_, n) => n !== before && n !== after)
        ranges.splice(0, ranges.length, ...kept, added)
        ranges.sort((a, b) => a.addr - b.addr)
      }
      draw(`record ${i} (${action})`)
    }
  })
}
