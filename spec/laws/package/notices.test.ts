// THIRD-PARTY.md says of whom what is shipped has code, under which version and terms.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'

const root = fileURLToPath(new URL('../../../', import.meta.url))
const read = (path: string): string => readFileSync(join(root, path), 'utf8')
const words = (text: string): string => text.replaceAll(/[>\s]+/g, ' ').trim()

it.each([
  ['node-addon-api', 'LICENSE.md'],
  ['node-api-headers', 'LICENSE'],
  ['fp-ts', 'LICENSE'],
  ['rolldown', 'LICENSE'],
])('the notices have the license of %s, whose code is in what is shipped', (name, license) => {
  const { version } = JSON.parse(read(`node_modules/${name}/package.json`)) as { version: string }
  const notices = read('THIRD-PARTY.md')
  expect(notices).toContain(`## ${name} ${version}\n`)
  expect(words(notices)).toContain(words(read(`node_modules/${name}/${license}`)))
})
