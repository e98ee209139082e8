// The tests of a packed package, each a check of a tally.
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { bundled, bunRuns, command, copied, typed } from './package-checks.mjs'
import { installed, prints, readme, say } from './package-project.mjs'
import { root } from './run.mjs'
import { check } from './tally.mjs'

const MiB = 2 ** 20
const shown = bytes => `${(bytes / MiB).toFixed(1)} MiB`

/** Whether a size is within its bound; says both. */
const within = (bytes, bound) => {
  console.log(`${shown(bytes)}, at most ${shown(bound)}`)
  return bytes <= bound
}

/** What the README's reader does, and what errors show. */
const first = user => {
  const { net, output } = readme()
  const node = file => say(user.folder, [process.execPath, file], user.env)
  return [
    [
      "the README's program",
      () => {
        user.writeJavaScript('net.mjs', net)
        return prints(node('net.mjs'), output)
      },
    ],
    [
      'a CommonJS caller',
      () => {
        const ended = node(user.put('caller.cjs', join(root, 'spec/package/caller.cjs')))
        const works = prints(ended, '"type": "module"', '"ESNext.Disposable"', 'imported: function, function')
        return works && !ended.said.includes('was required')
      },
    ],
    [
      'names and places that errors show',
      () => {
        const ended = node(user.put('names.mjs', join(root, 'spec/package/names.mjs')))
        return prints(ended, 'names.mjs:14:', 'true BraidError') && !ended.said.includes('is named')
      },
    ],
  ]
}

/** Installs the package that was packed, and tries it. */
export const testPackage = (sum, pack) => {
  check(sum, 'package: its size', () => within(pack.bytes, 6 * MiB))
  let user
  try {
    check(sum, 'package: it installs without a script and without a compiler', () => {
      user = installed(pack.file)
      return within(user.bytes, 30 * MiB)
    })
    if (user === undefined) return
    check(sum, 'package: an import reads few files', () => {
      const code = readdirSync(join(user.modules, 'braid-gpu/dist'), { recursive: true, encoding: 'utf8' })
      const found = code.filter(path => path.endsWith('.js'))
      console.log(found.join(', '))
      return found.length <= 10
    })
    const checks = [first, command, typed, bundled, copied].flatMap(make => make(user))
    for (const [name, work] of checks) check(sum, `package: ${name}`, work)
    const bun = bunRuns(user)
    if (bun === undefined) sum.skipped++
    else check(sum, 'package: Bun', () => bun)
  } finally {
    user?.remove()
  }
}
