#pragma once

namespace braid {

// Error codes of a device. The numbers are the CUDA driver's (CUresult), so that the cuda device passes its
// own through unchanged and the host device can be made to fail with any of them.
enum class Status : int {
  ok = 0,
  invalidValue = 1,
  outOfMemory = 2,
  notInitialized = 3,
  deinitialized = 4,
  stubLibrary = 34,
  noDevice = 100,
  invalidDevice = 101,
  invalidImage = 200,
  invalidContext = 201,
  noBinaryForGpu = 209,
  invalidPtx = 218,
  fileNotFound = 301,
  sharedObjectInitFailed = 303,
  operatingSystem = 304,
  invalidHandle = 400,
  illegalState = 401,
  notFound = 500,
  notReady = 600,
  illegalAddress = 700,
  launchOutOfResources = 701,
  launchTimeout = 702,
  contextIsDestroyed = 709,
  misalignedAddress = 716,
  launchFailed = 719,
  notPermitted = 800,
  notSupported = 801,
  systemNotReady = 802,
  captureUnsupported = 900,
  captureInvalidated = 901,
  captureMerge = 902,
  captureUnmatched = 903,
  captureUnjoined = 904,
  captureIsolation = 905,
  captureImplicit = 906,
  capturedEvent = 907,
  captureWrongThread = 908,
  graphExecUpdateFailure = 910,
  unknown = 999,
};

// The driver's own name of a code ("CUDA_ERROR_OUT_OF_MEMORY"), the same on both devices.
const char* statusName(Status status);

// Whether the code is sticky: nothing more runs on the device's context, so the session ends, but the process
// goes on.
bool isSticky(Status status);

}  // namespace braid
