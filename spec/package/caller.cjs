// A caller of the form CommonJS: `require` is refused in words, `import()` works.
const doors = ['braid-gpu', 'braid-gpu/runtime']

for (const door of doors)
  try {
    require(door)
    console.log(`${door} was required`)
  } catch (error) {
    console.log(error.message)
  }

Promise.all(doors.map(door => import(door))).then(([language, runtime]) =>
  console.log(`imported: ${typeof language.graph}, ${typeof runtime.open}`),
)
