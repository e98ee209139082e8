// Names and places that errors show are as in the sources: a bundle renames what two of its files name alike.
import * as language from 'braid-gpu'
import * as runtime from 'braid-gpu/runtime'

for (const [name, value] of Object.entries({ ...language, ...runtime })) {
  if (typeof value !== 'function') continue
  const isClass = /^class\b/.test(Function.prototype.toString.call(value))
  if (isClass ? value.name !== name : value.name.includes('$')) console.log(`${name} is named ${value.name}`)
}

const { compile, download, graph, matmul, param, tensor, upload } = language
const wrong = compile(
  graph({ x: tensor('f32', [2, 3]) }, ({ x }) => ({
    y: x.pipe(upload(), matmul(param('w', tensor('f32', [2, 3]))), download()),
  })),
)
console.log(wrong.left[0].at)

// The doors share their classes.
const opened = await runtime.open({}, { device: 'host' })()
try {
  language.orThrow(opened)
} catch (error) {
  console.log(error instanceof language.BraidError, error.constructor.name)
}
