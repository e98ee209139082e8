// Scenes that a native addon dies of, one a process: `node --expose-gc addon-stress.mjs SCENE`. A scene that holds ends with
// status 0 and prints `held`; whatever the scene, the process must not crash. Run by spec/conformance/addon.test.ts.
import assert from 'node:assert/strict'
import { readdirSync } from 'node:fs'
import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'
import { isMainThread, parentPort, threadId, Worker, workerData } from 'node:worker_threads'

const addon = createRequire(import.meta.url)(fileURLToPath(new URL('../../native/build/braid.node', import.meta.url)))
const bytes = 64

const turn = () => new Promise(resolve => setImmediate(resolve))
const pause = ms => new Promise(resolve => setTimeout(resolve, ms))
/** Collects until it holds. */
const collected = async holds => {
  for (let i = 0; i < 200 && !holds(); i++) {
    globalThis.gc()
    await turn()
    await pause(2)
  }
  assert(holds(), `still not after 200 collections: ${holds}`)
}
const threads = () => readdirSync('/proc/self/task').length

const buffer = (name, space, life, root) => ({
  name,
  bytes,
  space,
  home: 0,
  life,
  root,
  rootOffset: 0,
  arenaOffset: -1,
})

/** x → y, by a copy, or by a user's kernel between device buffers. Buffers: 0 x, 1 y, 2 p (a param), then 3 a and 4 b. */
const specOf = (user = false) => ({
  name: 'stress',
  inFlight: 2,
  lanes: [{ name: 'lane', priority: 0 }],
  buffers: [
    buffer('x', 1, 3, 0),
    buffer('y', 1, 4, 1),
    buffer('p', 0, 2, 2),
    ...(user ? [buffer('a', 0, 0, 3), buffer('b', 0, 0, 4)] : []),
  ],
  kernels: [
    { kind: 'copy', bytes },
    ...(user
      ? [{ kind: 'cuda', name: 'f', source: '', grid: [1, 1, 1], block: [1, 1, 1], sharedBytes: 0, scalars: [] }]
      : []),
  ],
  nodes: [
    { name: 'copy', kernel: 0 },
    { name: 'f', kernel: user ? 1 : 0 },
  ],
  events: 0,
  commands: Int32Array.from(
    user
      ? [0, 3, 0, 2, 0, 0, 1, 1, 0, 3, 0, 4, 0, 2, 1, 0, 1, 1, 3, 4, 1, 3, 2, 0, 0, 1, 1, 4, 1, 1, 4]
      : [2, 0, 0, 1, 1, 0, 1],
  ),
  storage: 'pooled',
  arenaBytes: 0,
  bound: { device: 8192, pinned: 8192 },
})

/** Of an allocator, where nothing is bounded. */
const caching = {
  ...{ policy: 'order-then-grow', limit: Infinity, maxSplit: Infinity, maxNonSplitRounding: 2 ** 20 },
  ...{ largeSegment: 2 ** 20, collectAbove: 0, divisions: [], roundUpTo: 0, cacheUpTo: Infinity, reserveFirst: 0 },
}

const addOne = ([x], [y]) => {
  const from = new Float32Array(x)
  new Float32Array(y).set(from.map(value => value + 1))
}

const openWith = async (device, { user = false, references = { 1: addOne } } = {}) =>
  device.program(specOf(user), user ? { references } : {})

/** Runs ticks and checks each one's answer: x, or x + 1 where the user's kernel stands between. */
const runTicks = async (program, ticks, add, seed = 1) => {
  await new Promise((resolve, reject) => {
    let next = 0
    const feed = () => {
      new Float32Array(program.view(0, next % 2)).fill(seed + next)
      program.submit(next++)
    }
    program.onTick((tick, failure) => {
      if (failure) return reject(failure)
      try {
        const y = new Float32Array(program.view(1, tick % 2))
        for (const value of y) assert.equal(value, Math.fround(seed + tick + add))
        if (next < ticks) feed()
        else if (tick === ticks - 1) resolve()
      } catch (error) {
        reject(error)
      }
    })
    feed()
    if (ticks > 1) feed()
  })
}

const whole = async (rounds = 3) => {
  for (let i = 0; i < rounds; i++) {
    const device = addon.openHost({ jitter: 1 + i, jitterMicroseconds: 20, poison: true })
    for (const user of [false, true]) {
      const program = await openWith(device, { user })
      await runTicks(program, 60, user ? 1 : 0, 100 * threadId)
      await program.close()
    }
    device.close()
  }
}

const worker = role => new Worker(new URL(import.meta.url), { workerData: { role } })
const said = (from, wanted) =>
  new Promise((resolve, reject) => {
    from.on('message', message => message === wanted && resolve())
    from.on('error', reject)
    from.on('exit', code => reject(new Error(`a worker ended with ${code} and did not say ${wanted}`)))
  })

// What a worker does before somebody ends it. Each says `ready` when the hazard is there.
const roles = {
  /** Views of both kinds, a pool's functions, what one of them threw, and an observer: all that the addon refers to. */
  async holds() {
    const program = await openWith(addon.openHost({}))
    const device = addon.openCaching({}, caching, caching)
    const lane = device.addLane('lane', 0).id
    device.observe(() => false)
    const refuse = () => {
      throw new Error('no memory from here')
    }
    const { handle } = device.makePool(false, false, refuse, () => undefined)
    assert.equal(device.device.malloc(lane, bytes, handle, 0), 0)
    const block = device.pinned.malloc(lane, bytes, 0, 0)
    globalThis.held = [program, program.view(0, 0), device, device.view(block)]
    parentPort.postMessage('ready')
    await new Promise(() => undefined)
  },
  async whole() {
    await whole()
    parentPort.postMessage('done')
  },
  /** Ticks in flight that take a while, on a device that is slowed. */
  async ticks() {
    const device = addon.openHost({ copyRate: bytes * 20 })
    const program = await openWith(device)
    program.onTick(() => undefined)
    for (let tick = 0; tick < 6; tick++) program.submit(tick)
    parentPort.postMessage('ready')
    await new Promise(() => undefined)
  },
  /** Inside a reference that never returns, with the lane waiting for it, and a read waiting for that. */
  async reference() {
    const device = addon.openHost({})
    const program = await openWith(device, {
      user: true,
      references: {
        1: () => {
          parentPort.postMessage('ready')
          for (;;);
        },
      },
    })
    program.onTick(() => undefined)
    program.submit(0)
    program.submit(1)
    program.read(2).catch(() => undefined)
    await new Promise(() => undefined)
  },
  /** Before the reference could be called: JavaScript is busy elsewhere while the lane asks for it. */
  async asked() {
    const device = addon.openHost({})
    const program = await openWith(device, { user: true })
    program.onTick(() => undefined)
    program.read(2).catch(() => undefined)
    program.submit(0)
    program.read(2).catch(() => undefined)
    program.close().catch(() => undefined)
    parentPort.postMessage('ready')
    for (;;);
  },
  /** Opening and closing all the time. */
  async opening() {
    const device = addon.openHost({})
    parentPort.postMessage('ready')
    for (;;) {
      const opening = [openWith(device), openWith(device, { user: true })]
      for (const program of await Promise.all(opening)) {
        program.submit(0)
        program.close()
      }
    }
  },
  /** Ends on its own, with everything open. */
  async leaves() {
    const device = addon.openHost({ copyRate: bytes * 50 })
    const program = await openWith(device)
    program.submit(0)
    parentPort.postMessage('ready')
    process.exit(3)
  },
}

const throws = (call, what) => {
  try {
    call()
  } catch (error) {
    assert(error instanceof Error, `${what} threw ${String(error)}`)
    assert(error.message.length > 3, `${what}: no words`)
    return
  }
  assert.fail(`${what} was taken`)
}
const rejects = async (call, what) => {
  let promise
  try {
    promise = call()
  } catch (error) {
    return assert(error instanceof Error && error.message.length > 3, what)
  }
  await assert.rejects(promise, Error, what)
}

const nonsense = [
  undefined,
  null,
  true,
  '',
  'x',
  Symbol('s'),
  7n,
  -1,
  0.5,
  Number.NaN,
  Number.POSITIVE_INFINITY,
  2 ** 31,
  2 ** 32 + 1,
  2 ** 53 - 1,
  2 ** 53,
  2 ** 53 + 2,
  -(2 ** 53),
  1e300,
  [],
  {},
  () => 1,
  new Proxy(
    {},
    {
      get: () => {
        throw new RangeError('a getter that throws')
      },
    },
  ),
  new ArrayBuffer(8),
  new Float64Array(2),
  new DataView(new ArrayBuffer(8)),
]

const scenes = {
  async workers() {
    const others = [worker('whole'), worker('whole')]
    await Promise.all([whole(), ...others.map(one => said(one, 'done'))])
    await Promise.all(others.map(one => one.terminate()))
  },
  async terminate() {
    for (const role of ['ticks', 'reference', 'asked', 'opening', 'leaves', 'holds']) {
      for (let i = 0; i < 6; i++) {
        const one = worker(role)
        await said(one, 'ready')
        await pause(i * 2)
        await one.terminate()
      }
      await whole(1)
    }
  },
  async exit() {
    const device = addon.openHost({ copyRate: bytes * 20 })
    const program = await openWith(device)
    for (let tick = 0; tick < 4; tick++) program.submit(tick)
    console.log('held')
    process.exit(0)
  },
  async exitInReference() {
    const program = await openWith(addon.openHost({}), {
      user: true,
      references: {
        1: () => {
          console.log('held')
          process.exit(0)
        },
      },
    })
    for (let tick = 0; tick < 4; tick++) program.submit(tick)
    await new Promise(() => undefined)
  },
  async leaks() {
    const round = async () => {
      const device = addon.openHost({})
      const program = await openWith(device, { user: true })
      await runTicks(program, 4, 1)
      await program.close()
      assert.equal(device.memory().free, device.memory().total)
      device.close()
    }
    const settle = async () => {
      for (let i = 0; i < 10; i++) {
        globalThis.gc()
        await turn()
      }
      return process.memoryUsage.rss()
    }
    // The process's own heaps grow for some hundred rounds, and then no more.
    for (let i = 0; i < 450; i++) await round()
    const before = await settle()
    const running = threads()
    const files = readdirSync('/proc/self/fd').length
    for (let i = 0; i < 200; i++) await round()
    const after = await settle()
    assert(threads() <= running, `${threads()} threads, ${running} before`)
    assert.equal(readdirSync('/proc/self/fd').length, files)
    assert(after - before < 6 << 20, `${(after - before) / 2 ** 20} MiB more after 200 sessions`)
  },
  async forgotten() {
    // Node's own threads start when they are first needed.
    await whole(1)
    const before = threads()
    // In a function of its own, so that no frame holds them.
    const forget = async () => {
      for (let i = 0; i < 20; i++) {
        const device = addon.openHost({})
        const program = await openWith(device, { user: i % 2 === 1 })
        if (i % 4 === 0) await runTicks(program, 3, 0)
        if (i % 5 === 0) void program.close()
      }
      const kept = (await openWith(addon.openHost({}))).view(0, 0)
      new Uint8Array(kept).fill(9)
      return kept
    }
    let kept = await forget()
    assert(threads() > before)
    globalThis.gc()
    await turn()
    assert(
      new Uint8Array(kept).every(byte => byte === 9),
      'a view keeps its program',
    )
    kept = undefined
    await collected(() => threads() <= before)
  },
  async flyingForgotten() {
    let ended = 0
    const forget = async () => {
      const program = await openWith(addon.openHost({ copyRate: bytes * 100 }))
      program.onTick(() => ended++)
      for (let tick = 0; tick < 5; tick++) program.submit(tick)
    }
    await forget()
    await collected(() => ended === 5)
  },
  async misuse() {
    const device = addon.openHost({ memory: 1 << 20 })
    const program = await openWith(device)
    program.onTick(() => undefined)
    const other = addon.openHost({})
    for (const [name, method] of Object.entries(Object.getOwnPropertyDescriptors(program))) {
      if (typeof method.value !== 'function') continue
      for (const self of [...nonsense, device, Object.create(program), globalThis, parentPort])
        await rejects(async () => method.value.call(self, 0, 0), `${name} on ${typeof self}`)
    }
    for (const name of ['memory', 'program', 'close'])
      for (const self of [...nonsense, program, Object.create(device)])
        await rejects(async () => other[name].call(self), `${name} on ${typeof self}`)
    for (const value of nonsense) {
      const what =
        typeof value === 'symbol' ? 'a symbol' : `${typeof value} ${typeof value === 'object' ? '' : String(value)}`
      throws(() => program.view(value, 0), `view(${what})`)
      throws(() => program.view(0, value), `view(0, ${what})`)
      await rejects(() => program.load(value, new Uint8Array(bytes)), `load(${what})`)
      await rejects(() => program.load(2, value), `load(2, ${what})`)
      await rejects(() => program.read(value), `read(${what})`)
      throws(() => program.submit(value), `submit(${what})`)
      if (typeof value !== 'function') throws(() => program.onTick(value), `onTick(${what})`)
      if (!(value instanceof ArrayBuffer)) throws(() => addon.detach(value), `detach(${what})`)
      throws(() => addon.openCuda(value), `openCuda(${what})`)
      await rejects(() => device.program(value, {}), `program(${what})`)
      for (const option of ['memory', 'copyRate', 'jitter', 'poison', 'faults']) {
        try {
          addon.openHost({ [option]: value }).close()
        } catch (error) {
          assert(error instanceof Error && error.message.length > 3)
        }
      }
    }
    throws(() => program.load(0, new Uint8Array(bytes)), 'a load of an input')
    throws(() => program.load(2, new Uint8Array(bytes - 1)), 'a load of another size')
    // Every field of a program replaced in turn: refused, or opened and closed again; never a crash.
    const descend = async (path, value) => {
      if (typeof value !== 'object' || value === null) return
      for (const key of Object.keys(value)) {
        for (const bad of nonsense) {
          const spec = structuredClone(specOf(true))
          let at = spec
          for (const step of path) at = at[step]
          if (ArrayBuffer.isView(at) && typeof bad !== 'number') continue
          at[key] = bad
          try {
            await (await device.program(spec, { references: { 1: addOne } })).close()
          } catch (error) {
            assert(error instanceof Error && error.message.length > 3, `${path}.${key}`)
          }
        }
        if (!ArrayBuffer.isView(value)) await descend([...path, key], value[key])
      }
    }
    await descend([], specOf(true))
    // User code runs while a program is read: it may close the device, or the buffer that is read.
    const closing = addon.openHost({})
    await rejects(
      () =>
        closing.program(
          {
            ...specOf(),
            get commands() {
              closing.close()
              return specOf().commands
            },
          },
          {},
        ),
      'a device closed meanwhile',
    )
    const late = addon.openHost({})
    await rejects(
      () =>
        late.program(specOf(), {
          get trace() {
            late.close()
            return false
          },
        }),
      'a device closed by an option',
    )
    await runTicks(program, 3, 0)
    await program.close()
    device.close()
    throws(() => device.memory(), 'memory of a closed device')
    await rejects(() => device.program(specOf(), {}), 'a program on a closed device')
    assert.equal(device.close(), undefined)
    throws(() => program.submit(3), 'a tick of a closed program')
    throws(() => program.view(0, 0), 'a view of a closed program')
    await rejects(() => program.read(2), 'a read of a closed program')
    assert.equal(program.stats().ticks, 3)
    assert.equal(program.trace().tick.length, 0)
    await program.close()
  },
  async buffers() {
    const device = addon.openHost({})
    const program = await openWith(device)
    const first = program.view(0, 0)
    const second = program.view(0, 0)
    assert.equal(first.byteLength, 0, 'a second view detaches the first')
    assert.equal(second.byteLength, bytes)
    addon.detach(second)
    addon.detach(second)
    assert.equal(second.byteLength, 0)
    const gone = new Uint8Array(bytes)
    structuredClone(gone, { transfer: [gone.buffer] })
    await rejects(() => program.load(2, gone), 'a load of a detached buffer')
    const words = specOf().commands
    structuredClone(words, { transfer: [words.buffer] })
    // No commands: nothing to do, and nothing to read.
    await (await device.program({ ...specOf(), commands: words }, {})).close()
    // Transferred while it is copied: the bytes are old or new, the process lives.
    const large = { ...specOf(), bound: { device: 64 << 20, pinned: 8192 } }
    large.buffers[2].bytes = 32 << 20
    const big = await device.program(large, {})
    const moved = new Uint8Array(32 << 20).fill(3)
    const loading = big.load(2, moved)
    structuredClone(moved, { transfer: [moved.buffer] })
    await loading
    globalThis.gc()
    assert((await big.read(2)).byteLength === 32 << 20)
    await big.close()
    const last = program.view(1, 1)
    const escaped = []
    for (const slot of [0, 1]) {
      const view = program.view(0, slot)
      new Uint8Array(view).fill(5)
      if ('transfer' in view) escaped.push(slot ? view.transfer(2 * bytes) : view.transfer())
    }
    await program.close()
    device.close()
    assert.equal(last.byteLength, 0, 'close detaches what is left')
    for (const one of escaped) assert.equal(new Uint8Array(one)[bytes - 1], 5, 'memory moved elsewhere stays memory')
  },
  async callbacks() {
    const device = addon.openHost({})
    const program = await openWith(device)
    const seen = []
    process.on('uncaughtException', error => seen.push(error.message))
    await new Promise(resolve => {
      program.onTick(tick => {
        if (tick < 3) program.submit(tick + 1)
        else resolve()
        program.stats()
        throw new Error(`tick ${tick}`)
      })
      program.submit(0)
    })
    await turn()
    assert.deepEqual(seen, ['tick 0', 'tick 1', 'tick 2', 'tick 3'])
    process.removeAllListeners('uncaughtException')
    let closed
    program.onTick(() => (closed = program.close()))
    program.submit(4)
    while (!closed) await turn()
    await closed
    // A reference that closes, throws, detaches, or reaches into its own program.
    for (const [what, reference, wanted] of [
      [
        'throws',
        () => {
          throw new Error('mine')
        },
        /mine/,
      ],
      [
        'throws nothing',
        () => {
          throw undefined
        },
        /without a message/,
      ],
      ['detaches', (_, [y]) => addon.detach(y), /detached/],
    ]) {
      const failing = await openWith(addon.openHost({}), { user: true, references: { 1: reference } })
      const failure = await new Promise(resolve => {
        failing.onTick((_, error) => resolve(error))
        failing.submit(0)
      })
      assert.match(failure.message, wanted, what)
      assert.equal(failure.node, 1)
      assert.equal(failure.lane, 'lane')
      await failing.close()
    }
    let closing
    const own = await openWith(addon.openHost({}), {
      user: true,
      references: {
        1: (reads, writes) => {
          closing = own.close()
          throws(() => own.submit(9), 'submit')
          addOne(reads, writes)
        },
      },
    })
    own.submit(0)
    while (!closing) await turn()
    await closing
  },
  async flood() {
    const program = await openWith(addon.openHost({}))
    let next = 0
    const all = new Promise(resolve => {
      program.onTick((tick, failure) => {
        assert.equal(failure, null)
        assert.equal(tick, next++)
        if (next === 100_000) resolve()
      })
    })
    for (let tick = 0; tick < 100_000; tick++) program.submit(tick)
    await all
    assert.equal(program.stats().issueNanoseconds.length, 1024)
    await program.close()
  },
}

if (isMainThread) {
  await scenes[process.argv[2]]()
  console.log('held')
} else {
  await roles[workerData.role]()
}
