// A program that is loaded again whenever one of its files changes.
import { createRequire, register } from 'node:module'
import { join, resolve, sep } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { MessageChannel } from 'node:worker_threads'
import { type Program, setPositionMapper } from '../../dsl/index.js'
import { bySourceMap } from '../../dsl/internal.js'
import { standsAt } from '../files/whole.js'
import { home, loadProgram, startTypeScript } from './program.js'

/**
 * Milliseconds between two looks at a file, and how long files must be quiet: an editor may write in parts.
 */
const interval = 100

/** The CommonJS modules that are loaded, by file. */
const required = createRequire(import.meta.url).cache

/** The files of a program: its own, and those that it imports, without packages. */
export class Reloading {
  /** By file: what it was when it was looked at last. */
  readonly #files = new Map<string, string>()
  readonly #imported = new MessageChannel()
  // By looking: what tells of changes differs among systems, and not every file system does. It keeps the
  // process alive only in `changed`, so that Node ends a first load that can never settle.
  readonly #timer = setInterval(() => this.#look(), interval).unref()
  #own: readonly string[] = []
  #version = 0
  #changes = 0
  #onChange: (() => void) | undefined

  private constructor(private readonly path: string) {}

  static async of(path: string): Promise<Reloading> {
    const made = new Reloading(path)
    const { port1, port2 } = made.#imported
    port1.on('message', (url: string) => made.#watch(fileURLToPath(url)))
    port1.unref()
    if (/\.[mc]?ts$/.test(path)) await startTypeScript(path)
    const folders = ['dsl', 'runtime', 'dist/dsl', 'dist/runtime']
    const own = folders.map(folder => `${pathToFileURL(join(home(), folder)).href}/`)
    made.#own = own
    register('./reload-hooks.js', import.meta.url, { data: { own, port: port2 }, transferList: [port2] })
    setPositionMapper(position => bySourceMap(position) ?? { ...position, file: unversioned(position.file) })
    return made
  }

  /** The program as its files are now. Throws as `loadProgram` does; the files are watched all the same. */
  async load(): Promise<Program> {
    this.#watch(resolve(this.path))
    for (const file of this.#required()) delete required[file]
    try {
      return await loadProgram(this.path, ++this.#version)
    } finally {
      for (const file of this.#required()) this.#watch(unversioned(file))
    }
  }

  /** Files of the program that are CommonJS: they are kept by path, and `require` calls no hook. */
  #required(): readonly string[] {
    return Object.keys(required).filter(file => {
      const { href } = pathToFileURL(file)
      return !file.includes(`${sep}node_modules${sep}`) && !this.#own.some(folder => href.startsWith(folder))
    })
  }

  /** Resolves when a file has changed since the last call, and none has for a moment. */
  async changed(signal: AbortSignal): Promise<void> {
    const { promise, stop } = abortOf(signal)
    this.#timer.ref()
    try {
      if (this.#changes === 0)
        await Promise.race([promise, new Promise<void>(then => (this.#onChange = then))])
      do {
        this.#changes = 0
        await Promise.race([promise, new Promise(then => setTimeout(then, interval))])
      } while (this.#changes > 0)
    } finally {
      this.#timer.unref()
      stop()
    }
  }

  close(): void {
    clearInterval(this.#timer)
    this.#imported.port1.close()
    setPositionMapper(undefined)
  }

  #watch(file: string): void {
    if (!this.#files.has(file)) this.#files.set(file, stampOf(file))
  }

  #look(): void {
    for (const [file, before] of this.#files) {
      const now = stampOf(file)
      if (now === before) continue
      this.#files.set(file, now)
      this.#changes++
      this.#onChange?.()
    }
  }
}

/** Differs once a file is written, or another one, or none that can be reached, has taken its name. */
const stampOf = (file: string): string => {
  const found = standsAt(file)
  if (found === undefined || found instanceof Error) return `${found?.message}`
  return `${found.mtimeMs} ${found.size} ${found.ino}`
}

const unversioned = (file: string): string => file.replace(/\?braid=\d+$/, '')

const abortOf = (signal: AbortSignal): { readonly promise: Promise<never>; stop(): void } => {
  let stop = (): void => {}
  const promise = new Promise<never>((_, reject) => {
    const abort = (): void => reject(signal.reason)
    if (signal.aborted) abort()
    signal.addEventListener('abort', abort, { once: true })
    stop = () => signal.removeEventListener('abort', abort)
  })
  promise.catch(() => undefined)
  return { promise, stop }
}
