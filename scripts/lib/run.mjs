// Running other programs. Only node: imports: these files run before node_modules exists.
import { spawn, spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'

/** The repository's top folder, with a slash at the end. */
export const root = fileURLToPath(new URL('../../', import.meta.url))

/** An expected error: its message is printed without a stack. */
export class Stop extends Error {}

/**
 * Runs a program in the repository, its output to the terminal. Returns its exit status; 127 if it did not
 * start.
 */
export const run = (command, args, options = {}) => {
  const result = spawnSync(command, args, { cwd: root, stdio: ['ignore', 'inherit', 'inherit'], ...options })
  if (result.signal) return 128
  return result.error ? 127 : (result.status ?? 1)
}

/**
 * As `run`, concurrently with other programs: the output is printed in one piece when the program ends, and
 * is then in `printed`. With `onOutput`, the output is printed as it comes and passed to `onOutput`; with a
 * `stdio` that inherits, it goes to the terminal.
 */
export const runConcurrently = (command, args, { onOutput, printed = [], ...options } = {}) =>
  new Promise(resolve => {
    const child = spawn(command, args, { cwd: root, stdio: ['ignore', 'pipe', 'pipe'], ...options })
    const take = bytes => {
      if (onOutput === undefined) return printed.push(bytes)
      process.stdout.write(bytes)
      onOutput(bytes.toString())
    }
    for (const stream of [child.stdout, child.stderr]) stream?.on('data', take)
    const end = status => {
      process.stdout.write(Buffer.concat(printed))
      resolve(status)
    }
    child.on('error', () => end(127))
    child.on('close', (status, signal) => end(signal ? 128 : status))
  })

/**
 * As `run`, without a terminal: `onLine` gets each line of the output, and all of it is returned beside the
 * status. An abort of `signal` ends the program and those that it started.
 */
export const follow = (command, args, onLine, { signal, env = process.env } = {}) =>
  new Promise(resolve => {
    // A group of its own: cmake does not pass signals on to the build that it runs.
    const child = spawn(command, args, { cwd: root, env, stdio: ['ignore', 'pipe', 'pipe'], detached: true })
    const end = how => {
      try {
        if (child.pid !== undefined) process.kill(-child.pid, how)
      } catch {
        // It has ended.
      }
    }
    const stop = () => end('SIGTERM')
    const kill = () => end('SIGKILL')
    if (signal?.aborted) stop()
    signal?.addEventListener('abort', stop)
    process.on('exit', kill)
    let output = ''
    let rest = ''
    for (const stream of [child.stdout, child.stderr])
      stream?.setEncoding('utf8').on('data', text => {
        output += text
        const lines = (rest + text).split('\n')
        rest = lines.pop()
        for (const line of lines) onLine(line)
      })
    const close = status => {
      signal?.removeEventListener('abort', stop)
      process.off('exit', kill)
      resolve({ status, output })
    }
    child.on('error', () => close(127))
    child.on('close', (status, how) => close(how ? 128 : status))
  })

/** What a program says on standard output and error, or undefined where it is missing or fails. */
export const ask = (command, args, input = '') => {
  const result = spawnSync(command, args, { cwd: root, encoding: 'utf8', input })
  return result.error || result.status !== 0 ? undefined : `${result.stdout}${result.stderr}`
}

/** A program of node_modules, by the file that Node runs. */
export const tool = {
  tsc: `${root}node_modules/typescript/bin/tsc`,
  vitest: `${root}node_modules/vitest/vitest.mjs`,
  biome: `${root}node_modules/@biomejs/biome/bin/biome`,
}

/** Checks all types. The second time in a clone takes a third of the first. */
export const checkTypes = () => {
  const kept = ['--incremental', '--tsBuildInfoFile', '.cache/types.tsbuildinfo']
  return run(process.execPath, [tool.tsc, '--noEmit', '-p', '.', ...kept]) === 0
}

/** Runs `main`; a Stop ends the process with its sentence and status 1. */
export const entry = async main => {
  try {
    process.exitCode = await main()
  } catch (error) {
    if (!(error instanceof Stop)) throw error
    process.stderr.write(`\nbraid: ${error.message}\n`)
    process.exitCode = 1
  }
}

/** Whether this module is the one that Node was started with. */
export const isMain = url =>
  process.argv[1] !== undefined && fileURLToPath(url) === fileURLToPath(new URL(`file://${process.argv[1]}`))
