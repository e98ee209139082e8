// npm run test:package: packs the package, installs it in an empty folder as a user does, without scripts and
// with nothing but Node on the PATH, and tries what a user does first.
import { rmSync } from 'node:fs'
import { packed } from './lib/package-project.mjs'
import { testPackage } from './lib/package-tests.mjs'
import { entry } from './lib/run.mjs'
import { close, tally } from './lib/tally.mjs'
import { needNode } from './lib/tools.mjs'

await entry(async () => {
  needNode()
  const sum = tally()
  const pack = packed()
  try {
    testPackage(sum, pack)
  } finally {
    rmSync(pack.folder, { recursive: true, force: true })
  }
  return close(sum)
})
