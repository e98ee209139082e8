// What computes what on a GPU: a library, or a kernel of Braid's own.
import type { NativeReport } from '../addon.js'
import type { DeviceSummary } from '../device/devices.js'

export interface Uses {
  readonly products: string
  readonly attention: string
  readonly convolutions: string
  readonly 'all else': string
}

const own = "Braid's own kernels"

/** By which of the two attention or a convolution is computed. */
const byCudnn = (
  { libraries, cudnn }: Pick<NativeReport, 'libraries' | 'cudnn'>,
  devices: readonly Pick<DeviceSummary, 'kind' | 'computeCapability'>[],
  of: string,
): string => {
  const { found, version } = libraries.find(({ name }) => name === 'cuDNN') ?? { found: '', version: '' }
  const least = (cudnn.leastArchitecture / 10).toFixed(1)
  const gpus = devices.filter(({ kind }) => kind === 'cuda')
  if (cudnn.use === 'never') return `${own}: BRAID_CUDNN=off`
  if (found === '') return `${own}: cuDNN is missing`
  if (gpus.length > 0 && gpus.every(({ computeCapability }) => Number(computeCapability) < Number(least)))
    return `${own}: cuDNN is asked on GPUs of compute ${least} and later`
  if (cudnn.use === 'always')
    return `cuDNN ${version} for all ${of} that it computes (BRAID_CUDNN=always), else ${own}`
  const from = Math.log2(cudnn.askedFrom)
  return `cuDNN ${version} for ${of} of 2^${from} operations and more where it is measured to be faster, else ${own}`
}

/** In one line each, by what is installed and what the environment asks for. */
export const usesOf = (
  report: Pick<NativeReport, 'libraries' | 'cudnn'>,
  devices: readonly Pick<DeviceSummary, 'kind' | 'computeCapability'>[],
): Uses => {
  const library = (name: string) => report.libraries.find(each => each.name === name)
  const blas = library('cuBLASLt')
  const nvrtc = library('NVRTC')
  return {
    products: blas?.found
      ? `cuBLASLt ${blas.version}, but ${own} where they are faster or it computes none, as of whole numbers`
      : `${own}, which use no tensor cores: cuBLASLt ${blas?.problem.startsWith('not looked for') ? 'is switched off, BRAID_CUBLASLT=off' : 'is missing'}`,
    attention: byCudnn(report, devices, 'attention of f16 and bf16'),
    convolutions: byCudnn(report, devices, 'convolutions'),
    'all else': nvrtc?.found
      ? `${own}, compiled by NVRTC ${nvrtc.version}`
      : `nothing: NVRTC, which compiles ${own}, is missing`,
  }
}
