// The options of a snapshot as PyTorch's snapshots give them: its names, each of its type.
import type { AllocatorSnapshot } from './snapshot-data.js'

export type TorchSettings = Readonly<
  Record<string, string | number | boolean | Readonly<Record<string, number>>>
>

/**
 * PyTorch's settings, whatever the options are, then all of the options under the names that they have. An option of a device
 * has a name of its own (`maxSplit`); one that was read from PyTorch's snapshot has PyTorch's.
 */
export const torchSettings = (options: AllocatorSnapshot['options']): TorchSettings => {
  const first = <A>(names: readonly string[], is: (value: unknown) => value is A, otherwise: A): A => {
    const values: readonly unknown[] = names.map(name => options[name])
    return values.find(is) ?? otherwise
  }
  const number = (otherwise: number, ...names: readonly string[]) => first(names, isNumber, otherwise)
  const flag = (...names: readonly string[]) => first(names, isFlag, false)
  const each = divisions(options['divisions'] ?? options['roundup_power2_divisions'])
  return {
    ...options,
    PYTORCH_CUDA_ALLOC_CONF: first(['conf', 'PYTORCH_CUDA_ALLOC_CONF'], isText, ''),
    // No bound is -1 there, and a word here.
    max_split_size: number(-1, 'maxSplit', 'max_split_size'),
    garbage_collection_threshold: number(0, 'collectAbove', 'garbage_collection_threshold'),
    expandable_segments: flag('expandable', 'expandable_segments'),
    pinned_num_register_threads: number(1, 'pinned_num_register_threads'),
    release_lock_on_cudamalloc: flag('release_lock_on_cudamalloc'),
    pinned_use_cuda_host_register: flag('pinned_use_cuda_host_register'),
    graph_capture_record_stream_reuse: flag('graph_capture_record_stream_reuse'),
    roundup_power2_divisions: Object.fromEntries(
      Array.from({ length: 16 }, (_, i) => [String(2 ** i), each(i)]),
    ),
  }
}

const isNumber = (value: unknown): value is number => typeof value === 'number'
const isFlag = (value: unknown): value is boolean => typeof value === 'boolean'
const isText = (value: unknown): value is string => typeof value === 'string'

// A device's sixteen are one string with commas: a snapshot's options are plain values.
const divisions = (value: unknown): ((i: number) => number) => {
  if (isNumber(value)) return () => value
  const steps = isText(value) ? value.split(',').map(Number) : []
  return i => (Number.isSafeInteger(steps[i]) ? steps[i]! : 0)
}
