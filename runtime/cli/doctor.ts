import { availableParallelism, freemem, totalmem } from 'node:os'
import { renderAll } from '../../dsl/ir/messages.js'
import { shown } from '../../dsl/ir/show.js'
import { type NativeReport, native } from '../addon.js'
import { type DeviceName, type DeviceSummary, devices } from '../device/devices.js'
import { keptNext } from '../device/kept-files.js'
import { allocConfFromEnvironment, allocConfVariables, readAllocConf } from '../device/settings/conf.js'
import { device, parse } from './args.js'
import { machineFile, measuredMachine } from './doctor-machine.js'
import { type Uses, usesOf } from './doctor-uses.js'
import { refuseUnwritable, save } from './files.js'
import { measureHost } from './host-figures.js'
import { Misuse, type Output } from './io.js'
import { bytes, table } from './table.js'

export const usage = 'braid doctor [--machine FILE [--device auto|host|cuda:N]] [--json]'

interface Library {
  readonly name: string
  readonly found: string
  readonly version: string
  readonly problem: string
}

// By a part of a library's name: what the library is for, and how to install it.
const advice: readonly (readonly [RegExp, string, string])[] = [
  [
    /nvrtc/i,
    "maps, reductions and users' kernels on cuda",
    'pip install nvidia-cuda-nvrtc-cu12 (or -cu13), or the CUDA toolkit; ' +
      'then put its folder in LD_LIBRARY_PATH',
  ],
  [
    /cublas/i,
    "fast products on cuda; without it Braid's own kernels compute them",
    'pip install nvidia-cublas-cu12 (or -cu13), or the CUDA toolkit; then put its folder in LD_LIBRARY_PATH',
  ],
  [
    /cudnn/i,
    "attention and convolutions on cuda where it is faster than Braid's own kernels",
    'needed by nothing; to have it: pip install nvidia-cudnn-cu12 (or -cu13), then put its folder in ' +
      'LD_LIBRARY_PATH, and unset BRAID_CUDNN',
  ],
  [
    /nccl/i,
    'collectives of many GPUs',
    'pip install nvidia-nccl-cu12 (or -cu13), or your distribution; then put its folder in LD_LIBRARY_PATH',
  ],
  [
    /cuda/i,
    'any cuda device',
    "install NVIDIA's driver if this machine has a GPU; the host device needs none",
  ],
]

const adviceOf = (name: string) => advice.find(([pattern]) => pattern.test(name))
const purposeOf = (name: string) => adviceOf(name)?.[1] ?? 'an optional part'

type Kept = Pick<NativeReport, 'choices' | 'kernels'>

interface Probe {
  readonly found: readonly DeviceSummary[]
  readonly libraries: readonly Library[]
  readonly kept: Kept | undefined
  readonly uses: Uses | undefined
  readonly problem: string | undefined
}

const probe = (): Probe => {
  try {
    const { libraries, choices, kernels, cudnn } = native().probe()
    const found = devices()
    const uses = usesOf({ libraries, cudnn }, found)
    return { found, libraries, kept: { choices, kernels }, uses, problem: undefined }
  } catch (error) {
    const { message: problem } = error as Error
    return { found: [], libraries: [], kept: undefined, uses: undefined, problem }
  }
}

/** The allocator's settings in the environment. */
const settings = () => {
  const found = allocConfFromEnvironment()
  if (found === undefined) return { variable: null, variables: allocConfVariables, settings: [], faults: [] }
  const { variable, text, unread } = found
  const { options, notes, faults } = readAllocConf(text, variable)
  return { variable, variables: allocConfVariables, text, unread, settings: notes, faults, options }
}

type Settings = ReturnType<typeof settings>

const saySettings = (
  { variable, text, unread, settings, faults }: Settings,
  { say, styles }: Output,
): void => {
  say(`\n${styles.bold('Allocator settings')}`)
  if (variable === null) {
    say(`  None: ${allocConfVariables.join(', ')} are not set.`)
    return
  }
  say(`  ${variable}=${shown(text)}`)
  say('  Read by Device.open(name, { environment: true }) alone, and by the sessions on that Device.')
  if (unread?.length) say(`  Not read beside it: ${unread.join(', ')}`)
  const { good, dim, bad } = styles
  const rows = settings.map(({ key, value, effect, why }) => [
    key,
    value,
    effect === 'honoured' ? good(effect) : dim(effect),
    why,
  ])
  if (rows.length > 0) say(table(rows, '  '))
  if (faults.length > 0)
    say(`  ${bad('refused')}, and with it the whole text:\n${indented(renderAll(faults))}`)
}

/** Where measured choices of algorithms and the code of kernels are kept. */
const sayKept = ({ choices, kernels }: Kept, { say, styles }: Output): void => {
  say(`\n${styles.bold('Kept for the next process, for cuda')}`)
  if (choices.folder === '') {
    say(
      '  Nothing: BRAID_CACHE=off, or there is no HOME. Each open measures algorithms and compiles kernels anew.',
    )
    return
  }
  const state = ({ folder, kept, refusal }: Kept['choices'] | Kept['kernels']): string =>
    refusal !== ''
      ? `not used: ${refusal}. Next: ${keptNext}`
      : kept === 0
        ? `none is kept yet; they will be in ${folder}`
        : `${kept} ${kept === 1 ? 'is' : 'are'} kept in ${folder}`
  say(`  Measured choices of algorithms: ${state(choices)}`)
  say(`  Compiled kernels: ${state(kernels)}`)
  say(
    '  Delete a folder to have them made anew. BRAID_CACHE=FOLDER keeps them elsewhere, BRAID_CACHE=off nowhere.',
  )
}

const indented = (text: string): string => text.replace(/^/gm, '  ')

export const doctor = async (args: readonly string[], out: Output): Promise<number> => {
  const { positionals, values } = parse(
    args,
    { machine: { type: 'string' }, device: { type: 'string' } },
    usage,
  )
  if (positionals.length > 0) throw new Misuse(`"${positionals[0]}" is one word too many\nusage: ${usage}`)
  if (values.device !== undefined && values.machine === undefined)
    throw new Misuse(`--device says where --machine FILE is measured: give --machine too\nusage: ${usage}`)
  const wanted = values.device === undefined ? 'auto' : device(values.device)
  if (values.machine !== undefined) refuseUnwritable(values.machine, '--machine')
  const { found, libraries, kept, uses, problem } = probe()
  const gpu = found.some(({ kind }) => kind === 'cuda')
  const todo = libraries
    .filter(({ found }) => found === '')
    .map(library => ({
      library: library.name,
      for: purposeOf(library.name),
      do: adviceOf(library.name)?.[2] ?? 'nothing, unless a plan asks for it',
    }))
  const system = {
    node: process.version,
    platform: `${process.platform}-${process.arch}`,
    cores: availableParallelism(),
    memory: { total: totalmem(), free: freemem() },
  }
  const allocator = settings()
  const measured =
    values.machine === undefined || problem !== undefined
      ? undefined
      : await measureMachine(values.machine, wanted, gpu)
  out.result({
    ok: problem === undefined,
    ...(problem === undefined ? {} : { problem }),
    system,
    devices: found,
    libraries,
    ...kept,
    ...(uses === undefined ? {} : { uses }),
    todo,
    auto: gpu ? 'cuda:0' : 'host',
    allocator,
    ...(measured === undefined ? {} : { machine: measured }),
  })
  sayDoctor({ system, found, libraries, kept, uses, problem, todo, allocator, measured, gpu }, out)
  return problem === undefined ? 0 : 1
}

interface Report extends Probe {
  readonly system: { readonly node: string; readonly platform: string; readonly cores: number } & {
    readonly memory: { readonly total: number; readonly free: number }
  }
  readonly todo: readonly { readonly library: string; readonly for: string; readonly do: string }[]
  readonly allocator: Settings
  readonly measured: { readonly file: string; readonly device: string } | undefined
  readonly gpu: boolean
}

const sayDoctor = (report: Report, out: Output): void => {
  const { system, found, libraries, kept, uses, problem, todo, allocator, measured, gpu } = report
  const { bold, good, bad, dim } = out.styles
  const { cores, memory } = system
  const free = `${bytes(memory.free)} of ${bytes(memory.total)} memory free`
  out.say(`${bold('System')}   Node ${system.node}, ${system.platform}, ${cores} cores, ${free}`)
  if (problem !== undefined) {
    out.say(`${bad('The native addon does not load:')} ${problem}`)
    return
  }
  out.say(`\n${bold('Devices')}\n${table(found.map(describe), '  ')}`)
  const rows = libraries.map(({ name, found, version, problem }) => [
    name,
    found === '' ? dim('missing') : good('found'),
    found === '' ? problem : `${[version, found].filter(Boolean).join('  ')}, for ${purposeOf(name)}`,
  ])
  if (rows.length > 0) out.say(`\n${bold('Libraries')}\n${table(rows, '  ')}`)
  if (uses !== undefined)
    out.say(
      `\n${bold(`What computes what on cuda${gpu ? '' : ', where there is a GPU'}`)}\n${table(Object.entries(uses), '  ')}`,
    )
  if (kept !== undefined) sayKept(kept, out)
  saySettings(allocator, out)
  if (measured !== undefined) {
    const { device, file } = measured
    const next = `braid simulate PROGRAM --machine ${file}`
    out.say(`\n${bold('Machine')}\n  The host, measured on ${device}, is in ${file}: ${next}`)
  }
  out.say(`\n${bold('What to do')}`)
  if (!gpu) out.say("  Nothing, to run on the host device: device 'auto' takes it here.")
  for (const { library, for: purpose, do: action } of todo) out.say(`  ${library}, for ${purpose}: ${action}`)
  if (allocator.faults.length > 0)
    out.say(`  ${allocator.variable}: correct what is refused above, or unset it`)
  else if (gpu && todo.length === 0) out.say("  Nothing: device 'auto' takes cuda:0.")
}

/** Measures the host and writes the figures to a machine file. */
const measureMachine = async (file: string, wanted: string, gpu: boolean) => {
  const device = (wanted === 'auto' ? (gpu ? 'cuda:0' : 'host') : wanted) as DeviceName
  const figures = await measureHost(device)
  save(file, machineFile(figures, device), 'machine', '--machine')
  return { file, device, ...measuredMachine(figures) }
}

const describe = ({
  device,
  name,
  totalBytes,
  freeBytes,
  computeCapability,
  multiprocessors,
  driverVersion,
}: DeviceSummary): string[] => [
  device,
  name,
  `${bytes(freeBytes)} of ${bytes(totalBytes)} free`,
  device === 'host'
    ? 'its limit is an option: open(plan, { host: { memory } })'
    : `compute ${computeCapability}, ${multiprocessors} multiprocessors, ` +
      `driver for CUDA ${versionOf(driverVersion)}`,
]

const versionOf = (version: number): string =>
  `${Math.floor(version / 1000)}.${Math.floor((version % 1000) / 10)}`
