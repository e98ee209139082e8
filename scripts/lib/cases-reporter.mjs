// A vitest reporter: every test with its file, its state and, where it was skipped, the reason, as JSON into
// BRAID_CASES.
import { writeFileSync } from 'node:fs'
import { relative } from 'node:path'
import { root } from './run.mjs'

export default class Cases {
  onTestRunEnd(modules, unhandledErrors) {
    const suites = modules.map(module => ({
      file: relative(root, module.moduleId),
      // A file that cannot be loaded has no tests, and still fails.
      broken: module.errors().map(({ message }) => message),
      tests: [...module.children.allTests()].map(test => {
        const { state, note } = test.result()
        return { name: test.fullName, state, note }
      }),
    }))
    const unhandled = unhandledErrors.map(({ message }) => message)
    writeFileSync(process.env.BRAID_CASES, JSON.stringify({ suites, unhandled }))
  }
}
