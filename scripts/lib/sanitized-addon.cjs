// Loaded before anything else (`node --require`): the addon is then the one that scripts/sanitize.mjs built.
const { join } = require('node:path')

const folder = join(__dirname, '../../native')
const plain = join(folder, 'build/braid.node')
const { dlopen } = process
process.dlopen = (module, file, ...rest) =>
  dlopen.call(process, module, file === plain ? join(folder, 'build-asan-node/braid.node') : file, ...rest)
