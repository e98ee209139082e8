// Whether an output is older than its sources, by a fingerprint of the sources' names, sizes and times.
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { root } from './run.mjs'

/** Every file under `paths` (relative to the repository) that `wanted` takes, sorted. */
export const files = (paths, wanted = () => true) => {
  const found = []
  const visit = path => {
    const whole = join(root, path)
    if (!existsSync(whole)) return
    if (!statSync(whole).isDirectory()) return void (wanted(path) && found.push(path))
    for (const name of readdirSync(whole))
      if (!/^(node_modules|build(-.*)?|dist|\..*)$/.test(name)) visit(join(path, name))
  }
  for (const path of paths) visit(path)
  return found.sort()
}

/** Size and time of every file, and any words that the output depends on as well. */
export const fingerprint = (paths, words = []) => {
  const hash = createHash('sha256')
  for (const path of paths) {
    const { size, mtimeMs } = statSync(join(root, path))
    hash.update(`${path}\0${size}\0${mtimeMs}\n`)
  }
  return hash.update(words.join('\0')).digest('hex')
}

const whole = path => join(root, path)
export const readStamp = path => (existsSync(whole(path)) ? readFileSync(whole(path), 'utf8') : '')
/** Called before a build, so that the stamp of one that was cut short never fits. */
export const removeStamp = path => rmSync(whole(path), { force: true })
export const writeStamp = (path, text) => {
  mkdirSync(dirname(whole(path)), { recursive: true })
  writeFileSync(whole(path), text)
}
