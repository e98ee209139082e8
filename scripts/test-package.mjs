// npm run test:package: packs the package, installs it in an empty folder as a user does, without scripts and
// with nothing but Node on the PATH, and tries what a user does first.
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { bundled, bunRuns, command, copied, typed } from './lib/package-checks.mjs'
import { installed, packed, prints, readme, say } from './lib/package-project.mjs'
import { entry, root } from './lib/run.mjs'
import { check, close, tally } from './lib/tally.mjs'
import { needNode } from './lib/tools.mjs'

const MiB = 2 ** 20
const shown = bytes => `${(bytes / MiB).toFixed(1)} MiB`

/** Whether a size is within its bound; says both. */
const within = (bytes, bound) => {
  console.log(`${shown(bytes)}, at most ${shown(bound)}`)
  return bytes <= bound
}

await entry(async () => {
  needNode()
  const sum = tally()
  let pack
  check(sum, 'package: it is packed', () => {
    pack = packed()
    return within(pack.bytes, 6 * MiB)
  })
  if (pack === undefined) return close(sum)
  let user
  try {
    check(sum, 'package: it installs without a script and without a compiler', () => {
      user = installed(pack.file)
      return within(user.bytes, 30 * MiB)
    })
    if (user === undefined) return close(sum)
    const { net, output } = readme()
    const node = (...args) => say(user.folder, [process.execPath, ...args], user.env)
    check(sum, "package: the README's program", () => {
      user.putJavaScript('net.mjs', net)
      return prints(node('net.mjs'), output)
    })
    check(sum, 'package: a CommonJS caller', () => {
      const ended = node(user.put('caller.cjs', join(root, 'spec/package/caller.cjs')))
      return (
        !ended.said.includes('was required') &&
        prints(ended, '"type": "module"', '"ESNext.Disposable"', 'imported: function, function')
      )
    })
    check(sum, 'package: names and places that errors show', () => {
      const ended = node(user.put('names.mjs', join(root, 'spec/package/names.mjs')))
      return !ended.said.includes('is named') && prints(ended, 'names.mjs:13:', 'true BraidError')
    })
    for (const [name, work] of [...command(user), ...typed(user), ...bundled(user), copied(user)])
      check(sum, `package: ${name}`, work)
    const bun = bunRuns(user)
    if (bun === undefined) sum.skipped++
    else check(sum, 'package: Bun', () => bun)
  } finally {
    user?.remove()
    rmSync(pack.folder, { recursive: true, force: true })
  }
  return close(sum)
})
