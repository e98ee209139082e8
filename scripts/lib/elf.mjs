// What a shared library of Linux asks of the system that loads it, read from its dynamic symbols.

/** @typedef {{ name: string, weak: boolean, version: string | undefined }} Import */

const types = { dynamic: 6, symbols: 11, versionsNeeded: 0x6ffffffe, versionOfSymbol: 0x6fffffff }
const machines = { 62: 'x64', 183: 'arm64' }

/** The names of the dynamic symbols, the versions and the libraries of a 64-bit little-endian ELF file. */
export const readElf = bytes => {
  if (bytes.toString('latin1', 0, 4) !== '\x7fELF' || bytes[4] !== 2 || bytes[5] !== 1)
    throw new Error('not a 64-bit little-endian ELF file')
  const [table, size, count] = [
    Number(bytes.readBigUInt64LE(40)),
    bytes.readUInt16LE(58),
    bytes.readUInt16LE(60),
  ]
  const sections = Array.from({ length: count }, (_, i) => {
    const at = table + i * size
    const long = offset => Number(bytes.readBigUInt64LE(at + offset))
    return {
      type: bytes.readUInt32LE(at + 4),
      body: bytes.subarray(long(24), long(24) + long(32)),
      link: bytes.readUInt32LE(at + 40),
      entries: bytes.readUInt32LE(at + 44),
    }
  })
  const none = { body: Buffer.alloc(0), link: 0, entries: 0 }
  const section = type => sections.find(section => section.type === type && section.body.length > 0) ?? none
  const text = ({ link }, offset) => {
    const strings = sections[link].body
    return strings.toString('latin1', offset, strings.indexOf(0, offset))
  }
  const { versions, needed } = readVersions(section(types.versionsNeeded), text)
  const dynamic = section(types.dynamic)
  const libraries = []
  for (let at = 0; at < dynamic.body.length; at += 16)
    if (dynamic.body.readBigInt64LE(at) === 1n)
      libraries.push(text(dynamic, Number(dynamic.body.readBigUInt64LE(at + 8))))
  const symbols = section(types.symbols)
  const versionOfSymbol = section(types.versionOfSymbol).body
  /** @type {Import[]} */
  const imports = []
  const exports = []
  // The first symbol is empty.
  for (let i = 1; i * 24 < symbols.body.length; i++) {
    const at = i * 24
    const name = text(symbols, symbols.body.readUInt32LE(at))
    const version = versions.get(versionOfSymbol.readUInt16LE(i * 2) & 0x7fff)
    const weak = symbols.body[at + 4] >> 4 === 2
    if (symbols.body.readUInt16LE(at + 6) === 0) imports.push({ name, weak, version })
    else exports.push(name)
  }
  return { machine: machines[bytes.readUInt16LE(18)], libraries, needed, imports, exports }
}

/** The versions that are asked for, each beside its library, and by the number that symbols name it by. */
const readVersions = (section, text) => {
  const versions = new Map()
  const needed = []
  const { body, entries } = section
  for (let i = 0, at = 0; i < entries; i++, at += body.readUInt32LE(at + 12)) {
    const library = text(section, body.readUInt32LE(at + 4))
    for (let j = 0, aux = at + body.readUInt32LE(at + 8); j < body.readUInt16LE(at + 2); j++) {
      const version = text(section, body.readUInt32LE(aux + 8))
      versions.set(body.readUInt16LE(aux + 6), version)
      needed.push({ library, version })
      aux += body.readUInt32LE(aux + 12)
    }
  }
  return { versions, needed }
}

/** What runs the shipped addon at the least: Ubuntu 22.04 and RHEL 9, with the libgcc_s of RHEL 9. */
export const floor = { GLIBC: '2.34', GCC: '11.0' }

const libraries = /^(libc|libm|libdl|libpthread|libgcc_s|ld-linux-[\w-]+)\.so\.\d+$/
const registration = ['napi_register_module_v1', 'node_api_module_get_api_version_v1']

const isAbove = (version, least) => {
  const [a, b] = [version, least].map(text => text.split('.').map(Number))
  for (let i = 0; i < Math.max(a.length, b.length); i++)
    if ((a[i] ?? 0) !== (b[i] ?? 0)) return (a[i] ?? 0) > (b[i] ?? 0)
  return false
}

/** Why an addon cannot be shipped: a sentence for each thing that a system of `floor` may not have. */
export const shippingFaults = ({ libraries: loaded, needed, imports, exports }) => [
  ...loaded.filter(name => !libraries.test(name)).map(name => `it needs ${name}, which not every system has`),
  ...needed.flatMap(({ library, version }) => {
    const [, family, number] = /^([A-Z]+)_(\d+(?:\.\d+)*)$/.exec(version) ?? []
    if (Object.hasOwn(floor, family ?? '') && !isAbove(number, floor[family])) return []
    const names = imports.filter(each => each.version === version).map(({ name }) => name)
    const some = names.length > 3 ? [...names.slice(0, 2), `${names.length - 2} more`] : names
    return [`it needs ${version} of ${library}${some.length > 0 ? `, for ${some.join(', ')}` : ''}`]
  }),
  // Node-API is all that a program which loads addons must have.
  ...imports
    .filter(({ name, weak, version }) => version === undefined && !weak && !/^(napi|node_api)_/.test(name))
    .map(({ name }) => `it needs a program that has ${name}`),
  ...exports.filter(name => !registration.includes(name)).map(name => `it exports ${name}`),
  ...registration.filter(name => !exports.includes(name)).map(name => `it does not export ${name}`),
]
