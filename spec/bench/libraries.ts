// Attention and convolutions on a GPU: Braid's own kernel, cuDNN's wherever it can, and what `open` chooses
// by measuring, beside the best way of PyTorch's. Each of Braid's ways is a process-wide setting that is read
// when a device is opened.

import { orThrow } from '../../dsl/index.js'
import { native } from '../../runtime/addon.js'
import { Device } from '../../runtime/index.js'
import { type Body, ofLibraries } from './model-bodies.js'
import { differenceOf, ours, pytorch } from './models.js'

const settings = { own: 'off', cuDNN: 'always', chosen: '' } as const

const byCudnn = (): number => native().probe().choices.byCudnn

/** A body with that setting of BRAID_CUDNN. */
const measured = async (body: Body, setting: string) => {
  const [before, calls] = [process.env['BRAID_CUDNN'], byCudnn()]
  process.env['BRAID_CUDNN'] = setting
  try {
    await using device = orThrow(await Device.open('cuda:0')())
    return { ...(await ours(body, device)), calls: byCudnn() - calls }
  } finally {
    if (before === undefined) delete process.env['BRAID_CUDNN']
    else process.env['BRAID_CUDNN'] = before
  }
}

export const bench = {
  name: 'libraries',
  title:
    "Attention and convolutions on cuda:0 by Braid's own kernels and by cuDNN, and the best of PyTorch: milliseconds a step",
  run: async (log: (line: string) => void) => {
    const all = ofLibraries()
    const { torch, jobs } = pytorch(all)
    log(`PyTorch ${torch}`)
    const results = []
    for (const [i, body] of all.entries()) {
      const own = await measured(body, settings.own)
      const cudnn = await measured(body, settings.cuDNN)
      const chosen = await measured(body, settings.chosen)
      const { ways, ends } = jobs[i]!
      const best = ways.filter(({ ms }) => ms !== undefined).sort((a, b) => a.ms! - b.ms!)[0]
      const ratio = chosen.ms / (best?.ms ?? Number.NaN)
      const difference = Math.max(...[own, cudnn, chosen].map(each => differenceOf(each.ends, ends)))
      const held = ratio <= body.bar && difference <= body.allowed
      const row = {
        body: body.name,
        '': body.dtype,
        'own, ms': own.ms,
        'cuDNN, ms': cudnn.calls > 0 ? cudnn.ms : 'not taken',
        'chosen, ms': chosen.ms,
        'which is': chosen.calls > 0 ? 'cuDNN' : 'own',
        'PyTorch, ms': best?.ms ?? Number.NaN,
        'its best way': best?.way ?? 'failed',
        ratio,
        bar: `≤ ${body.bar}: ${held ? 'held' : 'missed'}`,
        difference,
        allowed: body.allowed,
      }
      log(Object.values(row).join(' | '))
      for (const { way, ms, error } of ways) log(`    ${way}: ${ms?.toFixed(4) ?? error}`)
      results.push({ row, held })
    }
    return { rows: results.map(({ row }) => row), ok: results.every(({ held }) => held) }
  },
}
