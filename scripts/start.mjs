// npm start [-- FILE]: from a bare clone to examples/weight-streaming, on the bytes of FILE.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { prepare } from './build.mjs'
import { entry, root, run, Stop } from './lib/run.mjs'

await entry(() => {
  prepare()
  const main = join(root, 'dist/examples/weight-streaming/main.js')
  if (!existsSync(main)) throw new Stop(`${main} is missing after the build.`)
  // The file is named relative to where the user stands, which npm remembers in INIT_CWD.
  return run(process.execPath, [main, ...process.argv.slice(2)], {
    cwd: process.env.INIT_CWD ?? process.cwd(),
    stdio: 'inherit',
  })
})
