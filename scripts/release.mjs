// npm run release [-- --dry-run]: packs the package, tries that file as `npm run test:package` does, and
// publishes that file with its provenance. It needs the credentials of the registry, and a CI that vouches for
// the build (`--provenance`); --dry-run needs neither, and publishes nothing.
import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { npmFile, packed } from './lib/package-project.mjs'
import { testPackage } from './lib/package-tests.mjs'
import { ask, entry, root, run, Stop } from './lib/run.mjs'
import { close, tally } from './lib/tally.mjs'
import { needNode } from './lib/tools.mjs'

const { name, version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))

/** What is wrong with the checkout, as sentences. */
const faults = () => {
  const changes = ask('git', ['status', '--porcelain'])
  const head = readFileSync(join(root, 'CHANGELOG.md'), 'utf8')
  const tag = ask('git', ['tag', '--points-at', 'HEAD'])?.split('\n') ?? []
  const published = ask(process.execPath, [npmFile(), 'view', `${name}@${version}`, 'version'])?.trim()
  return [
    ...(changes === undefined ? ['This is no checkout of git.'] : []),
    ...(changes ? [`The checkout has changes that are not committed:\n${changes.trimEnd()}`] : []),
    ...(head.includes(`\n## ${version}\n`) ? [] : [`CHANGELOG.md has no section "## ${version}".`]),
    ...(tag.includes(`v${version}`) ? [] : [`The commit has no tag v${version}.`]),
    ...(published ? [`${name} ${version} is published already: write another version in package.json.`] : []),
  ]
}

await entry(async () => {
  needNode()
  const dry = process.argv.includes('--dry-run')
  const found = faults()
  if (found.length > 0 && !dry) throw new Stop(found.join('\n'))
  for (const fault of found) console.log(`A release would stop here: ${fault}`)
  const sum = tally()
  const pack = packed()
  try {
    testPackage(sum, pack)
    if (close(sum) !== 0) return 1
    const args = [
      'publish',
      pack.file,
      '--provenance',
      '--access',
      'public',
      '--ignore-scripts',
      '--loglevel=warn',
    ]
    return run(process.execPath, [npmFile(), ...args, ...(dry ? ['--dry-run'] : [])])
  } finally {
    rmSync(pack.folder, { recursive: true, force: true })
  }
})
