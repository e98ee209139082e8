import { existsSync, lstatSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { root, run, Stop } from './run.mjs'

const time = path => (existsSync(join(root, path)) ? statSync(join(root, path)).mtimeMs : -1)

/**
 * Whether node_modules is as new as package-lock.json; npm writes .package-lock.json last. A node_modules
 * that is a link belongs to another checkout, where `npm ci` would remove every package first.
 */
export const isInstalled = () =>
  lstatSync(join(root, 'node_modules'), { throwIfNoEntry: false })?.isSymbolicLink() === true ||
  time('node_modules/.package-lock.json') >= time('package-lock.json')

/** Runs `npm ci` where node_modules is missing or older than package-lock.json. */
export const install = () => {
  if (isInstalled()) return
  console.log('Installing the packages of package-lock.json (npm ci) …')
  const npm = process.env.npm_execpath
  const args = ['ci', '--include=dev', '--no-audit', '--no-fund', '--loglevel=error']
  const status = npm?.endsWith('.js') ? run(process.execPath, [npm, ...args]) : run('npm', args)
  if (status === 127)
    throw new Stop(
      'npm is needed to install the packages, and it is not on the PATH. ' +
        'It comes with Node: https://nodejs.org/en/download',
    )
  if (status !== 0)
    throw new Stop(
      'npm ci failed (its messages are above). It needs the network once, or an npm cache; ' +
        'then run this again.',
    )
}
