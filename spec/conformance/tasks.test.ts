// Tasks: what is called, or awaited, runs; a write that is neither is not dropped in silence.
import { spawnSync } from 'node:child_process'
import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import * as E from 'fp-ts/lib/Either.js'
import * as TE from 'fp-ts/lib/TaskEither.js'
import { describe, expect, it } from 'vitest'
import { compile, download, graph, orThrow, tensor, tree, upload } from '../../dsl/index.js'
import { Device, open, planTree, safetensors, writeSafetensors } from '../../runtime/index.js'
import { root, scratch } from '../fixtures/command.js'

const plan = orThrow(
  compile(
    graph('net', { x: tensor('f32', [2]) }, ({ x }) => ({ y: x.pipe(upload(), download()) })),
    { storage: 'planned' },
  ),
)
const entry = { name: 'w', dtype: 'f32', shape: [2], bytes: new Uint8Array(8) } as const

describe('a task', () => {
  const { folder } = scratch()

  it('runs where it is awaited, as where it is called', async () => {
    const path = join(folder, 'w.safetensors')
    expect(await writeSafetensors(path, [entry])).toEqual(E.right(undefined))
    expect(existsSync(path)).toBe(true)
    const all = [
      () => open(plan, { device: 'host' }),
      () => Device.open('host'),
      () => safetensors(path),
      () => planTree(tree({ plans: { plan }, start: ['plan'] }), { device: 'host' }),
    ] as const
    for (const make of all) {
      for (const made of [await make(), await make()()]) {
        expect(made._tag).toBe('Right')
        await orThrow(made as E.Either<never, AsyncDisposable>)[Symbol.asyncDispose]()
      }
    }
    expect((await safetensors(join(folder, 'none')))._tag).toBe('Left')
    expect(await TE.map(() => 1)(open(plan, { device: 'nothing' }))()).toMatchObject({ _tag: 'Left' })
  })

  it('of a write that is dropped is warned of, also where the process is ended; no other is', () => {
    const file = join(folder, 'program.mts')
    const runtime = pathToFileURL(join(root, 'runtime/index.ts')).href
    writeFileSync(
      file,
      `import { safetensors, writeSafetensors } from '${runtime}'
       const path = ${JSON.stringify(join(folder, 'written.safetensors'))}
       const entries = [{ name: 'w', dtype: 'u8', shape: [1], bytes: new Uint8Array(1) }]
       await writeSafetensors(path, entries)()
       await writeSafetensors(path, entries)
       safetensors(path)
       writeSafetensors(path, entries)
       process.exit(0)`,
    )
    const { status, stderr } = spawnSync(process.execPath, ['--import', 'tsx', file], {
      cwd: root,
      encoding: 'utf8',
    })
    expect(status, stderr).toBe(0)
    expect(stderr.match(/BRAID_TASK\] BraidWarning: writeSafetensors\(…\) was dropped/g)).toHaveLength(1)
  })
})
