// Hazard: where a FinalizationRegistry is collected before its callbacks have run, the V8 of Node 20 calls
// those of no registry of the process any more. So each of Braid's lives as long as its module.
import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'

const root = fileURLToPath(new URL('../../../', import.meta.url))

it('every FinalizationRegistry is a constant of its module', () => {
  const made = ['dsl', 'runtime'].flatMap(room =>
    readdirSync(`${root}${room}`, { recursive: true, encoding: 'utf8' })
      .filter(path => path.endsWith('.ts'))
      .flatMap(path =>
        readFileSync(`${root}${room}/${path}`, 'utf8')
          .split('\n')
          .filter(line => line.includes('new FinalizationRegistry'))
          .map(line => `${room}/${path}: ${line}`),
      ),
  )
  expect(made.length).toBeGreaterThan(5)
  expect(made.filter(line => !/: (export )?const \w+ = new FinalizationRegistry/.test(line))).toEqual([])
})
