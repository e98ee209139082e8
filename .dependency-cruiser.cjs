// Who may import whom: the order of the rooms. A room imports only from rooms above it in its list.
const rooms = [
  ...['collections', 'ir', 'order', 'memory', 'trees', 'verify'],
  ...['machine', 'language', 'interpret', 'compiler', 'explain'],
]

const below = rooms.slice(0, -1).map((room, at) => ({
  name: `dsl-${room}-imports-upward`,
  comment: `dsl/${room} may import only ${['itself', ...rooms.slice(0, at)].join(', ')}.`,
  severity: 'error',
  from: { path: `^dsl/${room}/` },
  to: { path: `^dsl/(${rooms.slice(at + 1).join('|')}|index)` },
}))

module.exports = {
  forbidden: [
    { name: 'no-circle', comment: 'No circle of files.', severity: 'error', from: {}, to: { circular: true } },
    {
      name: 'no-circle-of-folders',
      comment: 'No circle of folders.',
      severity: 'error',
      scope: 'folder',
      from: { path: '^(dsl|runtime)/' },
      to: { circular: true },
    },
    ...below,
    {
      name: 'dsl-is-pure',
      comment: 'dsl knows nothing of the runtime.',
      severity: 'error',
      from: { path: '^dsl/' },
      to: { path: '^(runtime|spec|examples|scripts)/' },
    },
    {
      name: 'dsl-runs-anywhere',
      comment: 'dsl imports no module of Node: it does no input or output.',
      severity: 'error',
      from: { path: '^dsl/' },
      to: { dependencyTypes: ['core'] },
    },
    {
      name: 'one-door-to-native',
      comment: 'The addon is loaded by runtime/addon.ts alone.',
      severity: 'error',
      from: { path: '^(runtime|examples)/', pathNot: '^runtime/addon\\.ts$' },
      to: { path: '^native/' },
    },
    {
      name: 'doors-to-dsl',
      comment: 'runtime takes from dsl its public door, its ir, and what dsl/internal.ts lists.',
      severity: 'error',
      from: { path: '^runtime/' },
      to: { path: '^dsl/', pathNot: '^dsl/(index\\.ts|internal\\.ts|ir/)' },
    },
    {
      name: 'internal-is-for-runtime',
      comment: 'dsl/internal.ts is a door, not a room: only runtime goes through it.',
      severity: 'error',
      from: { pathNot: '^(runtime|spec)/' },
      to: { path: '^dsl/internal\\.ts$' },
    },
    {
      name: 'compiler-analysis-is-asked',
      comment: 'analysis answers passes and the search; it calls neither.',
      severity: 'error',
      from: { path: '^dsl/compiler/analysis/' },
      to: { path: '^dsl/compiler/(passes|search|compile)' },
    },
    {
      name: 'compiler-passes-do-not-search',
      comment: 'The search calls passes; no pass calls the search.',
      severity: 'error',
      from: { path: '^dsl/compiler/passes/' },
      to: { path: '^dsl/compiler/(search|compile)' },
    },
  ],
  options: {
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    doNotFollow: { path: 'node_modules' },
  },
}
