#pragma once

#include <cstddef>

// The part of NVRTC that Braid calls (nvrtc.h of CUDA 12 and 13). No symbol of it carries a version.
namespace braid::cuda {

using nvrtcResult = int;
using nvrtcProgram = struct _nvrtcProgram*;

inline constexpr nvrtcResult kNvrtcSuccess = 0, kNvrtcCompilation = 6;

#define BRAID_NVRTC_FUNCTIONS(X)                                                                        \
  X(nvrtcVersion, (int* major, int* minor))                                                             \
  X(nvrtcGetNumSupportedArchs, (int* count))                                                            \
  X(nvrtcGetSupportedArchs, (int* archs))                                                               \
  X(nvrtcCreateProgram, (nvrtcProgram * program, const char* source, const char* name, int headerCount, \
                         const char* const* headers, const char* const* includeNames))                  \
  X(nvrtcDestroyProgram, (nvrtcProgram * program))                                                      \
  X(nvrtcCompileProgram, (nvrtcProgram program, int optionCount, const char* const* options))           \
  X(nvrtcGetProgramLogSize, (nvrtcProgram program, std::size_t * bytes))                                \
  X(nvrtcGetProgramLog, (nvrtcProgram program, char* log))                                              \
  X(nvrtcGetCUBINSize, (nvrtcProgram program, std::size_t * bytes))                                     \
  X(nvrtcGetCUBIN, (nvrtcProgram program, char* cubin))                                                 \
  X(nvrtcGetPTXSize, (nvrtcProgram program, std::size_t * bytes))                                       \
  X(nvrtcGetPTX, (nvrtcProgram program, char* ptx))

struct NvrtcFunctions {
#define BRAID_FIELD(name, arguments) nvrtcResult(*name) arguments = nullptr;
  BRAID_NVRTC_FUNCTIONS(BRAID_FIELD)
#undef BRAID_FIELD
};

}  // namespace braid::cuda
