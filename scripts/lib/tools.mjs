// The tools that a build needs, each with the error message for where it is missing.
import { ask, Stop } from './run.mjs'

const atLeast = (found, wanted) => {
  for (let i = 0; i < wanted.length; i++) {
    const difference = (found[i] ?? 0) - wanted[i]
    if (difference !== 0) return difference > 0
  }
  return true
}

const numbers = text =>
  /(\d+(?:\.\d+)+)/
    .exec(text ?? '')?.[1]
    ?.split('.')
    .map(Number)

/**
 * As Braid's `engines` field: Node 20.19 is the first 20 that loads ES modules by `require`; its Node-API is
 * 9.
 */
export const needNode = (version = process.versions.node) => {
  if (atLeast(version.split('.').map(Number), [20, 19])) return
  throw new Stop(
    `Node 20.19 or newer is needed, this is Node ${version} (${process.execPath}).\n` +
      '  Install a newer one: https://nodejs.org/en/download, or `nvm install 22`, ' +
      'or `apt-get install nodejs` where that is new enough.',
  )
}

/** The native part maps memory, names threads and finds libraries as Linux does. */
export const needLinux = (platform = process.platform) => {
  if (platform === 'linux') return
  throw new Stop(
    `The native part is written for Linux; this is ${platform}.\n` +
      '  Build it in a container, in a virtual machine, or in WSL 2. The language, the compiler, the interpreter ' +
      'and the verifier need no build.',
  )
}

const probe =
  '#include <compare>\n#include <concepts>\n#include <semaphore>\n#include <span>\n' +
  'int main() { return std::span<int>().empty() ? 0 : 1; }\n'

/** The C++ compiler that CMake will take: $CXX, else c++, g++, clang++. Tried on a file that wants C++20. */
export const needCompiler = () => {
  const candidates = [process.env.CXX, 'c++', 'g++', 'clang++'].filter(name => name)
  const present = []
  for (const name of candidates) {
    const version = ask(name, ['--version'])
    if (version === undefined) continue
    present.push(`${name}: ${version.split('\n')[0]}`)
    if (ask(name, ['-std=c++20', '-x', 'c++', '-fsyntax-only', '-'], probe) !== undefined) return name
  }
  throw new Stop(
    `A C++20 compiler is needed to build the native part (g++ 11 or clang++ 14, or newer). ${
      present.length
        ? `Found only:\n    ${present.join('\n    ')}`
        : `None of ${candidates.join(', ')} is installed.`
    }\n  Debian, Ubuntu: sudo apt-get install g++      Fedora: sudo dnf install gcc-c++      Alpine: apk add g++`,
  )
}

export const needCMake = () => {
  const version = numbers(ask('cmake', ['--version']))
  if (version && atLeast(version, [3, 20])) return
  throw new Stop(
    'CMake 3.20 or newer is needed to build the native part; ' +
      `${version ? `this is ${version.join('.')}` : 'it is not installed'}.\n` +
      '  Debian, Ubuntu: sudo apt-get install cmake      Fedora: sudo dnf install cmake      Alpine: apk add cmake',
  )
}

/** Ninja where it is installed, else make. */
export const generator = () => {
  if (ask('ninja', ['--version']) !== undefined) return 'Ninja'
  if (ask('make', ['--version']) !== undefined) return 'Unix Makefiles'
  throw new Stop(
    'Neither ninja nor make is installed, and CMake needs one.\n' +
      '  Debian, Ubuntu: sudo apt-get install ninja-build      Fedora: sudo dnf install ninja-build      ' +
      'Alpine: apk add ninja',
  )
}

/** Returns what each of these yields; all that is missing is in one Stop. */
export const needAll = (...needs) => {
  const missing = []
  const found = needs.map(need => {
    try {
      return need()
    } catch (error) {
      if (!(error instanceof Stop)) throw error
      missing.push(error.message)
      return undefined
    }
  })
  if (missing.length > 0) throw new Stop(missing.join('\n'))
  return found
}
