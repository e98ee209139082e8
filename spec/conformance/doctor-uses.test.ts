// What `braid doctor` says about what computes what on a GPU, of machines that are not here.
import { expect, it } from 'vitest'
import { usesOf } from '../../runtime/cli/doctor-uses.js'

type Report = Parameters<typeof usesOf>[0]

const cudnn = { use: 'measured', leastArchitecture: 80, askedFrom: 2 ** 30 } as const
const libraries = (...found: readonly string[]): Report['libraries'] =>
  ['CUDA driver', 'NVRTC', 'cuBLASLt', 'cuDNN'].map(name => ({
    name,
    ...(found.includes(name)
      ? { found: `/lib/${name}`, version: '12.9', problem: '' }
      : { found: '', version: '', problem: 'it is missing' }),
  }))
const all = libraries('CUDA driver', 'NVRTC', 'cuBLASLt', 'cuDNN')
const gpu = (computeCapability: string) =>
  [{ kind: 'cuda', computeCapability }] as Parameters<typeof usesOf>[1]

it('names the libraries that compute products, attention and convolutions', () => {
  const uses = usesOf({ libraries: all, cudnn }, gpu('9.0'))
  expect(uses.products).toMatch(/^cuBLASLt 12.9, but Braid's own kernels where they are faster/)
  for (const each of [uses.attention, uses.convolutions])
    expect(each).toMatch(
      /^cuDNN 12.9 .*2\^30 operations and more where it is measured to be faster, else Braid's own/,
    )
  expect(uses['all else']).toBe("Braid's own kernels, compiled by NVRTC 12.9")
  const always = usesOf({ libraries: all, cudnn: { ...cudnn, use: 'always' } }, gpu('9.0'))
  expect(always.attention).toContain('(BRAID_CUDNN=always)')
})

it('names what computes them where a library is missing, or is not asked', () => {
  const none = usesOf({ libraries: libraries(), cudnn }, [])
  expect(none).toMatchObject({
    products: "Braid's own kernels, which use no tensor cores: cuBLASLt is missing",
    attention: "Braid's own kernels: cuDNN is missing",
    convolutions: "Braid's own kernels: cuDNN is missing",
    'all else': expect.stringMatching(/^nothing: NVRTC/),
  })
  const off = usesOf({ libraries: all, cudnn: { ...cudnn, use: 'never' } }, gpu('9.0'))
  expect(off.convolutions).toBe("Braid's own kernels: BRAID_CUDNN=off")
  const old = usesOf({ libraries: all, cudnn }, gpu('7.5'))
  expect(old.attention).toBe("Braid's own kernels: cuDNN is asked on GPUs of compute 8.0 and later")
})
