// The error of a device that does not open: each sentence states what is known, and nothing that is not.
import { describe, expect, it } from 'vitest'
import { openFailure } from '../../../runtime/device/open-failure.js'
import { twoLanes } from '../../fixtures/plans/by-hand.js'

const failure = (fields: object): Error => Object.assign(new Error('a message'), fields)

describe('the error of a device that does not open', () => {
  it('keeps the message of an error that is not of the addon, though it has a code', () => {
    const error = failure({ code: 'ERR_DLOPEN_FAILED' })
    expect(openFailure(error, 'host')).toMatchObject({ _tag: 'DriverFailed', found: 'a message' })
  })

  it('names the driver call where there is one', () => {
    const code = 'CUDA_ERROR_UNKNOWN'
    expect(openFailure(failure({ code, op: 'memAllocate', detail: 'why' }), 'cuda:0').found).toBe(
      'CUDA_ERROR_UNKNOWN in memAllocate (why)',
    )
    expect(openFailure(failure({ code, op: '' }), 'cuda:0').found).toBe('CUDA_ERROR_UNKNOWN')
  })

  it('counts the missing bytes, and reports where enough are free and none can be had', () => {
    const short = (wantedBytes: number, freeBytes: number) =>
      openFailure(
        failure({ code: 'CUDA_ERROR_OUT_OF_MEMORY', op: 'memAllocate', wantedBytes, freeBytes }),
        'cuda:0',
        twoLanes,
      ).found
    expect(short(1000, 400)).toBe('400 bytes free: 600 bytes are missing')
    for (const free of [1000, 5000])
      expect(short(1000, free)).toBe(
        `${free.toLocaleString('en-US')} bytes free, but not to be had: ` +
          'CUDA_ERROR_OUT_OF_MEMORY in memAllocate',
      )
  })
})
