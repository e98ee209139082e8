#include "driver/status.h"

namespace braid {

const char* statusName(Status status) {
  switch (status) {
    case Status::ok: return "CUDA_SUCCESS";
    case Status::invalidValue: return "CUDA_ERROR_INVALID_VALUE";
    case Status::outOfMemory: return "CUDA_ERROR_OUT_OF_MEMORY";
    case Status::notInitialized: return "CUDA_ERROR_NOT_INITIALIZED";
    case Status::deinitialized: return "CUDA_ERROR_DEINITIALIZED";
    case Status::stubLibrary: return "CUDA_ERROR_STUB_LIBRARY";
    case Status::noDevice: return "CUDA_ERROR_NO_DEVICE";
    case Status::invalidDevice: return "CUDA_ERROR_INVALID_DEVICE";
    case Status::invalidImage: return "CUDA_ERROR_INVALID_IMAGE";
    case Status::invalidContext: return "CUDA_ERROR_INVALID_CONTEXT";
    case Status::noBinaryForGpu: return "CUDA_ERROR_NO_BINARY_FOR_GPU";
    case Status::invalidPtx: return "CUDA_ERROR_INVALID_PTX";
    case Status::fileNotFound: return "CUDA_ERROR_FILE_NOT_FOUND";
    case Status::sharedObjectInitFailed: return "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED";
    case Status::operatingSystem: return "CUDA_ERROR_OPERATING_SYSTEM";
    case Status::invalidHandle: return "CUDA_ERROR_INVALID_HANDLE";
    case Status::illegalState: return "CUDA_ERROR_ILLEGAL_STATE";
    case Status::notFound: return "CUDA_ERROR_NOT_FOUND";
    case Status::notReady: return "CUDA_ERROR_NOT_READY";
    case Status::illegalAddress: return "CUDA_ERROR_ILLEGAL_ADDRESS";
    case Status::launchOutOfResources: return "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES";
    case Status::launchTimeout: return "CUDA_ERROR_LAUNCH_TIMEOUT";
    case Status::contextIsDestroyed: return "CUDA_ERROR_CONTEXT_IS_DESTROYED";
    case Status::misalignedAddress: return "CUDA_ERROR_MISALIGNED_ADDRESS";
    case Status::launchFailed: return "CUDA_ERROR_LAUNCH_FAILED";
    case Status::systemNotReady: return "CUDA_ERROR_SYSTEM_NOT_READY";
    case Status::notPermitted: return "CUDA_ERROR_NOT_PERMITTED";
    case Status::captureUnsupported: return "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
    case Status::captureInvalidated: return "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED";
    case Status::captureMerge: return "CUDA_ERROR_STREAM_CAPTURE_MERGE";
    case Status::captureUnmatched: return "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED";
    case Status::captureUnjoined: return "CUDA_ERROR_STREAM_CAPTURE_UNJOINED";
    case Status::captureIsolation: return "CUDA_ERROR_STREAM_CAPTURE_ISOLATION";
    case Status::captureImplicit: return "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT";
    case Status::capturedEvent: return "CUDA_ERROR_CAPTURED_EVENT";
    case Status::captureWrongThread: return "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD";
    case Status::graphExecUpdateFailure: return "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE";
    case Status::notSupported: return "CUDA_ERROR_NOT_SUPPORTED";
    case Status::unknown: return "CUDA_ERROR_UNKNOWN";
  }
  // Codes that this table does not list come from the CUDA driver unchanged; they are named by number.
  switch (static_cast<int>(status)) {
    case 46: return "CUDA_ERROR_DEVICE_UNAVAILABLE";
    case 214: return "CUDA_ERROR_ECC_UNCORRECTABLE";
    case 220: return "CUDA_ERROR_NVLINK_UNCORRECTABLE";
    case 226: return "CUDA_ERROR_CONTAINED";
    case 300: return "CUDA_ERROR_INVALID_SOURCE";
    case 302: return "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND";
    case 708: return "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE";
    case 710: return "CUDA_ERROR_ASSERT";
    case 714: return "CUDA_ERROR_HARDWARE_STACK_ERROR";
    case 715: return "CUDA_ERROR_ILLEGAL_INSTRUCTION";
    case 717: return "CUDA_ERROR_INVALID_ADDRESS_SPACE";
    case 718: return "CUDA_ERROR_INVALID_PC";
    case 720: return "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE";
    case 803: return "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH";
    case 804: return "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE";
    default: return "CUDA_ERROR_OTHER";
  }
}

bool isSticky(Status status) {
  switch (static_cast<int>(status)) {
    case 214:
    case 220:
    case 226:
    case 700:
    case 702:
    case 709:
    case 710:
    case 714:
    case 715:
    case 716:
    case 717:
    case 718:
    case 719: return true;
    default: return false;
  }
}

}  // namespace braid
