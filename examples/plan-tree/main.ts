// A decoder whose host picks the next plan by what came out, for four shapes of batch: twelve plans in one
// arena. Prints what each plan would have taken apart, and compares every word with plain loops. Exit status
// 1 if one differs.
import { parseArgs } from 'node:util'
import { byShape, orThrow, tree } from 'braid-gpu'
import { planTree } from 'braid-gpu/runtime'
import { embedding, expected, type Kind, params, plansFor } from './network.js'

const { values: flags } = parseArgs({
  options: { device: { type: 'string', default: 'host' }, words: { type: 'string', default: '24' } },
})

const [one, two, four, eight] = [1, 2, 4, 8].map(plansFor) as [Plans, Plans, Plans, Plans]
type Plans = ReturnType<typeof plansFor>

/** A plan for each shape of batch, under one name. */
const each = <K extends Kind>(kind: K) =>
  byShape({ 1: one[kind], 2: two[kind], 4: four[kind], 8: eight[kind] })

const decoder = tree({
  plans: { prompt: each('prompt'), step: each('step'), think: each('think') },
  start: ['prompt'],
  then: { prompt: ['step', 'think'], step: ['step', 'think'], think: ['step', 'think'] },
})

const best = (logits: Float32Array): number => logits.indexOf(Math.max(...logits.subarray(0, 16)))

const main = async (): Promise<boolean> => {
  await using decode = orThrow(await planTree(decoder, { device: flags.device, params })())
  const total = Number(flags.words)
  console.log(`Braid · plan tree: ${total} words for each of four shapes of batch on ${decode.device.name}\n`)
  let furthest = 0
  const picked = { prompt: 0, step: 0, think: 0 }
  const check = (found: Float32Array, wanted: Float32Array): void => {
    const scale = Math.max(1e-3, ...wanted.map(Math.abs))
    found.forEach((value, i) => {
      furthest = Math.max(furthest, Math.abs(value - wanted[i]!) / scale)
    })
  }
  for (const batch of [1, 8, 2, 4] as const) {
    let token = embedding(batch, 0)
    let kind: Kind = 'prompt'
    let now = expected('prompt', batch, token)
    let { values } = decode.launch('prompt', { tokens: token })
    for (let word = 0; ; word++) {
      const { logits } = await values
      check(logits, now.logits)
      picked[kind]++
      if (word === total) break
      const spoken = best(logits)
      token = embedding(batch, spoken)
      // What came out decides what comes next.
      kind = (word + spoken) % 3 === 0 ? 'think' : 'step'
      now = expected(kind, batch, token, now.state)
      values = decode.launch(kind, { token }).values
    }
  }
  const { arena, alone, layouts, executables, moves } = decode.stats()
  const apart = Object.values(alone).reduce((sum, bytes) => sum + bytes, 0)
  const kibibytes = (bytes: number): string => `${(bytes / 1024).toFixed(1).padStart(8)} KiB`
  for (const [plan, bytes] of Object.entries(alone))
    console.log(`  ${plan.padEnd(8)} apart ${kibibytes(bytes)}`)
  console.log(
    `  ${'sum'.padEnd(8)} apart ${kibibytes(apart)}\n  ${'arena'.padEnd(8)}       ${kibibytes(arena)}\n`,
  )
  const report = (holds: boolean, text: string): boolean => {
    console.log(`  ${holds ? '✓' : '✗'} ${text}`)
    return holds
  }
  return [
    report(furthest < 1e-3, `values: within ${furthest.toExponential(1)} of plain loops after every word`),
    report(
      picked.step > 0 && picked.think > 0,
      `plans: ${picked.prompt} prompts, ${picked.step} steps, ${picked.think} thoughts`,
    ),
    report(arena < apart, `memory: ${(apart / arena).toFixed(1)} times less than apart`),
    report(
      executables.remade === 0 && moves === 0,
      `launches: ${layouts} layouts, ${executables.made} executables, nothing moved or made twice`,
    ),
  ].every(holds => holds)
}

try {
  process.exitCode = (await main()) ? 0 : 1
} catch (error) {
  console.error(`\nplan-tree: ${error instanceof Error ? error.message : String(error)}`)
  process.exitCode = 1
}
