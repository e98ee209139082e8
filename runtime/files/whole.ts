// Files that are read or written as a whole.
import {
  accessSync,
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  ftruncateSync,
  openSync,
  readSync,
  realpathSync,
  renameSync,
  rmSync,
  type Stats,
  statSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

/**
 * Flags for opening a path for reading. Opening a FIFO waits for a writer, which may never come, unless it is
 * opened without blocking; a regular file is read the same either way.
 */
export const readFlags = constants.O_RDONLY | (constants.O_NONBLOCK ?? 0)

/** What stands at a path, where it is no regular file. */
export const irregular = (stats: Stats): string | undefined => {
  if (stats.isFile()) return undefined
  if (stats.isDirectory()) return 'a directory'
  if (stats.isFIFO()) return 'a FIFO (named pipe), which may never give data or end'
  if (stats.isSocket()) return 'a socket'
  return 'a device'
}

/** What stands at a path: undefined where nothing does, an error where the system does not say. */
export const standsAt = (path: string): Stats | Error | undefined => {
  try {
    return statSync(path, { throwIfNoEntry: false })
  } catch (error) {
    // A circle of links, a name that is too long, a folder that may not be entered.
    return error as Error
  }
}

// The descriptors that this process was started with: `/dev/stdin`, and what a shell's `<(command)` names.
// They are used as they are, since Linux cannot open a socket by its path.
const ownDescriptor = (path: string): number | undefined => {
  const [, name, number] = /^(?:\/dev|\/proc\/self)\/(?:(std\w+)|fd\/(\d{1,6}))$/.exec(path) ?? []
  const named = ['stdin', 'stdout', 'stderr'].indexOf(name ?? '')
  return named >= 0 ? named : number === undefined ? undefined : Number(number)
}

/** Bytes that are read at a time. */
const piece = 2 ** 22

/** The next bytes of a file, 0 at its end. Waits for those of a pipe, even of one that does not block. */
const readSome = (file: number, into: Buffer): number => {
  for (;;)
    try {
      return readSync(file, into, 0, into.length, null)
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException
      if (code === 'EOF') return 0
      if (code !== 'EAGAIN') throw error
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 10)
    }
}

/**
 * The bytes of a regular file, or of a pipe that this process was started with, in pieces; a piece is valid
 * until the next one is asked for. Throws for anything else at the path, such as a FIFO or a device.
 */
export function* piecesOf(path: string): Generator<Buffer> {
  const given = ownDescriptor(path)
  const file = given ?? openSync(path, readFlags)
  try {
    const stats = fstatSync(file)
    const isPipe = given !== undefined && (stats.isFIFO() || stats.isSocket())
    const found = isPipe ? undefined : irregular(stats)
    if (found !== undefined) throw new Error(`it is ${found}`)
    const bytes = Buffer.allocUnsafe(piece)
    for (let read = readSome(file, bytes); read > 0; read = readSome(file, bytes))
      yield bytes.subarray(0, read)
  } finally {
    if (given === undefined) closeSync(file)
  }
}

/** The longest file that is read into memory. */
const longest = 2 ** 31

/** All bytes of a regular file, or of a pipe that this process was started with. */
export const readWhole = (path: string): Buffer => {
  const pieces: Buffer[] = []
  let bytes = 0
  for (const some of piecesOf(path)) {
    bytes += some.length
    if (bytes > longest) throw new Error(`it is longer than ${longest / 2 ** 30} GiB`)
    pieces.push(Buffer.from(some))
  }
  return Buffer.concat(pieces)
}

let parts = 0

/** A name beside `path` for a file that is not complete yet. */
export const partOf = (path: string): string => join(dirname(path), `.braid-${process.pid}-${parts++}.part`)

/** The regular file that stands at a path, links followed; the path itself where nothing stands there. */
export const targetOf = (path: string, stats: Stats | undefined): string =>
  stats === undefined ? path : realpathSync(path)

type Content = Iterable<string | Uint8Array>

const writeAll = (file: number, content: Content): void => {
  for (const part of content) writeFileSync(file, part)
}

const writeInto = (file: number, content: Content): void => {
  try {
    writeAll(file, content)
  } finally {
    closeSync(file)
  }
}

// A pipe or a character device takes the bytes as they come.
const openStream = (path: string, stats: Stats): number => {
  if (stats.isBlockDevice()) throw new Error('it is a block device')
  if (!stats.isFIFO()) return openSync(path, 'w')
  try {
    closeSync(openSync(path, constants.O_WRONLY | constants.O_NONBLOCK))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENXIO') throw new Error('it is a FIFO that nobody reads')
    throw error
  }
  return openSync(path, 'w')
}

const refused = ['EACCES', 'EPERM', 'EROFS']

/**
 * Opens a new file beside the target, or the target where its folder cannot be written. The target stays as
 * it is. `part`: the path of the new file.
 */
const openFor = (target: string, stats: Stats | undefined): { file: number; part: string | undefined } => {
  const part = partOf(target)
  try {
    return { file: openSync(part, 'wx'), part }
  } catch (error) {
    if (stats === undefined || !refused.includes((error as NodeJS.ErrnoException).code ?? '')) throw error
    return { file: openSync(target, constants.O_WRONLY), part: undefined }
  }
}

/**
 * Writes a file so that it is complete wherever it has its name: under another name beside it, which is
 * removed where writing fails. A pipe, a device and a file in a folder that cannot be written are written in
 * place.
 */
export const writeWhole = (path: string, content: Content): void => {
  const given = ownDescriptor(path)
  if (given !== undefined) {
    writeAll(given, content)
    return
  }
  const stats = statSync(path, { throwIfNoEntry: false })
  if (stats?.isFile() === false) {
    writeInto(openStream(path, stats), content)
    return
  }
  const target = targetOf(path, stats)
  const { file, part } = openFor(target, stats)
  if (part === undefined) {
    ftruncateSync(file)
    writeInto(file, content)
    return
  }
  try {
    if (stats !== undefined) fchmodSync(file, stats.mode & 0o7777)
    writeInto(file, content)
    renameSync(part, target)
  } finally {
    rmSync(part, { force: true })
  }
}

/**
 * Throws where `writeWhole` cannot begin. It opens what `writeWhole` opens, since permissions alone do not
 * tell: root has all of them, also where a file system refuses.
 */
export const checkWritable = (path: string): void => {
  if (ownDescriptor(path) !== undefined) return
  const stats = statSync(path, { throwIfNoEntry: false })
  if (stats?.isDirectory()) throw new Error('it is a directory')
  if (stats?.isFile() === false) {
    // Not opened: the reader of a pipe would take that for its end.
    accessSync(path, constants.W_OK)
    return
  }
  const { file, part } = openFor(targetOf(path, stats), stats)
  closeSync(file)
  if (part !== undefined) rmSync(part)
}

/** The path that a `file:` URL stands for. Any other value is left to what opens it, which reports it. */
export const pathOf = (file: string | URL): string =>
  file instanceof URL && file.protocol === 'file:' ? fileURLToPath(file) : (file as string)
