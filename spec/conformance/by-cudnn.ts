// Plans on CUDA with cuDNN forced or forbidden.
import type { HostArray } from '../../dsl/language/values.js'
import { native } from '../../runtime/addon.js'
import { present } from './devices.js'
import { ran } from './yields.js'

// biome-ignore lint/suspicious/noExplicitAny: shapes and options vary, which no type follows
type Anything = any

const byCudnn = (): number => native().probe().choices.byCudnn

export const hasCudnn =
  present.includes('cuda:0') &&
  native()
    .probe()
    .libraries.some(({ name, found }) => name === 'cuDNN' && found !== '')

/** The output y of the first tick, and how many kernels of the plan call cuDNN. */
export const yieldedBy = async (
  use: 'always' | 'off',
  { net, feeds }: { readonly net: unknown; readonly feeds: Readonly<Record<string, readonly HostArray[]>> },
  mode: 'eager' | 'graph',
): Promise<{ readonly y: HostArray; readonly calls: number }> => {
  const [kept, before] = [process.env['BRAID_CUDNN'], byCudnn()]
  process.env['BRAID_CUDNN'] = use
  try {
    const [got] = await ran(net as Anything, 'cuda:0', feeds, { compile: { mode } })
    return { y: got!['y']!, calls: byCudnn() - before }
  } finally {
    if (kept === undefined) delete process.env['BRAID_CUDNN']
    else process.env['BRAID_CUDNN'] = kept
  }
}
