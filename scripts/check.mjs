// npm run check: lint and format of both languages, imports between rooms, types, and a build without
// warnings. Changes no file.
//   --pictures: only draws the imports anew in docs/internals/architecture.md.
//   --surface: only writes the public surface anew into spec/golden/surface.txt.
import { buildTypeScript } from './build.mjs'
import { install } from './lib/install.mjs'
import { withBuildLock } from './lib/lock.mjs'
import { buildNative } from './lib/native.mjs'
import { nativeRooms, pictures, typescriptRooms } from './lib/rooms.mjs'
import { ask, checkTypes, entry, run, tool } from './lib/run.mjs'
import { files } from './lib/stamp.mjs'
import { surfaceIsShown } from './lib/surface.mjs'
import { check, close, tally } from './lib/tally.mjs'
import { needNode } from './lib/tools.mjs'

// cppcheck reports two things that are no errors: a pointer whose owner has moved into the neighbouring list,
// and lanes of 32 bits read as int or as float.
const cppcheck = [
  ...[
    '--std=c++20',
    '--language=c++',
    '-j2',
    '-q',
    '--error-exitcode=1',
    '--enable=warning,performance,portability',
  ],
  ...[
    '--suppress=missingInclude',
    '--suppress=invalidLifetime:native/executor/program.cc',
    '--suppress=invalidPointerCast',
  ],
  ...['-I', 'native'],
  ...['bindings', 'cuda', 'driver', 'executor', 'graphs', 'host', 'kernels', 'memory', 'order', 'tools'].map(
    folder => `native/${folder}`,
  ),
]

await entry(() => {
  needNode()
  withBuildLock(install)
  if (process.argv.includes('--pictures')) {
    pictures(true)
    return 0
  }
  if (process.argv.includes('--surface')) {
    withBuildLock(() => buildTypeScript())
    surfaceIsShown(true)
    return 0
  }
  const sum = tally()
  const node = (...args) => run(process.execPath, args) === 0
  check(sum, 'biome: lint and format', () =>
    node(tool.biome, 'check', '--error-on-warnings', '--max-diagnostics=40'),
  )
  const cpp = files(['native'], path => /\.(h|cc)$/.test(path))
  if (ask('clang-format', ['--version']) === undefined) {
    console.log(
      '\nThe format of C++ was not checked: clang-format is not installed ' +
        '(Debian, Ubuntu: sudo apt-get install clang-format).',
    )
    sum.skipped++
  } else
    check(
      sum,
      'clang-format',
      () => run('clang-format', ['--dry-run', '-Werror', '--ferror-limit=20', ...cpp]) === 0,
    )
  if (ask('cppcheck', ['--version']) === undefined) {
    console.log(
      '\nThe C++ was not linted: cppcheck is not installed (Debian, Ubuntu: sudo apt-get install cppcheck).',
    )
    sum.skipped++
  } else check(sum, 'cppcheck', () => run('cppcheck', cppcheck) === 0)
  check(sum, 'rooms: who imports whom', () => [typescriptRooms(), nativeRooms(), pictures()].every(Boolean))
  check(sum, 'types', checkTypes)
  // -Werror: a warning is an error, so a build that stands had none.
  check(sum, 'build', () =>
    withBuildLock(() => {
      buildTypeScript()
      buildNative()
      return true
    }),
  )
  check(sum, 'surface: what the package exports', () => surfaceIsShown())
  return close(sum)
})
