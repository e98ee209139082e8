import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'

// Test files that `npm test` leaves to `.ci/run`. The option `--exclude` does nothing here: a project's own
// `exclude` takes its place.
const leftOut = process.env['BRAID_LEFT_OUT']?.split(',') ?? []

const at = (path: string) => fileURLToPath(new URL(path, import.meta.url))

// The tests run on the sources; only the addon is built before them. `braid-gpu` names the same modules as a
// relative import does.
export default defineConfig({
  resolve: {
    alias: [
      { find: /^braid-gpu\/runtime$/, replacement: at('./runtime/index.ts') },
      { find: /^braid-gpu$/, replacement: at('./dsl/index.ts') },
    ],
  },
  test: {
    setupFiles: ['spec/fixtures/seed.ts'],
    typecheck: { enabled: false },
    pool: 'forks',
    // Without this one core in two would be idle on a machine of two.
    maxWorkers: '100%',
    // Lost leases come back when they are collected: their test collects.
    execArgv: ['--expose-gc'],
    // No test leaves files in the user's cache, nor finds any there.
    env: { BRAID_CACHE: 'off' },
    testTimeout: 180_000,
    projects: [
      // Test files that share a worker share its modules: their import takes a fifth of all time otherwise. A
      // file that replaces a module (`vi.mock`) is named `.mocked` and has a worker of its own.
      {
        extends: true,
        test: {
          name: 'spec',
          include: ['spec/**/*.test.ts'],
          exclude: ['**/*.mocked.test.ts', ...leftOut],
          isolate: false,
        },
      },
      {
        extends: true,
        test: { name: 'mocked', include: ['spec/**/*.mocked.test.ts'], exclude: leftOut },
      },
    ],
  },
})
