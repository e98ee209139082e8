#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

// The part of the CUDA driver API that Braid calls, declared here so that no CUDA header is needed to build.
// Each declaration is the driver's own: a size or an order that differs is a crash, not an error. See cuda.h
// of CUDA 12 and 13.
namespace braid::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = std::uint64_t;
using CUpages = std::uint64_t;  // CUmemGenericAllocationHandle
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUhostFn = void (*)(void*);

inline constexpr CUresult kSuccess = 0, kPeerUnsupported = 217, kSymbolMissing = 500, kNotReady = 600,
                          kPeerAlreadyEnabled = 704, kTooManyPeers = 711;

// CUdevice_attribute
inline constexpr int kMaxThreadsPerBlock = 1, kMaxBlockX = 2, kMaxBlockY = 3, kMaxBlockZ = 4, kMaxGridX = 5,
                     kMaxGridY = 6, kMaxGridZ = 7, kSharedPerBlock = 8, kMultiprocessors = 16,
                     kComputeMajor = 75, kComputeMinor = 76, kSharedPerBlockOptIn = 97, kVirtualMemory = 102;
// CUfunction_attribute
inline constexpr int kFunctionMaxThreads = 0, kFunctionStaticShared = 1, kFunctionMaxDynamicShared = 8;
// Flags
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kHostAllocPortable = 1;
// CUjit_option
inline constexpr int kJitErrorLog = 5, kJitErrorLogBytes = 6;

struct CUmemLocation {
  int type = 1;  // CU_MEM_LOCATION_TYPE_DEVICE
  int id = 0;
};

struct CUmemAllocationProp {
  int type = 1;                  // CU_MEM_ALLOCATION_TYPE_PINNED
  int requestedHandleTypes = 0;  // not exported to other processes
  CUmemLocation location;
  void* win32HandleMetaData = nullptr;
  struct {
    unsigned char compressionType = 0, gpuDirectRDMACapable = 0;
    unsigned short usage = 0;
    unsigned char reserved[4] = {};
  } allocFlags;
};
static_assert(sizeof(CUmemAllocationProp) == 32);

struct CUmemAccessDesc {
  CUmemLocation location;
  int flags = 3;  // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};
static_assert(sizeof(CUmemAccessDesc) == 12);

inline constexpr int kGranularityMinimum = 0, kGranularityRecommended = 1;

struct CUlaunchAttribute {
  int id = 0;
  char padding[4] = {};
  union {
    char bytes[64] = {};
    int programmaticStreamSerialization;
  };
};
static_assert(sizeof(CUlaunchAttribute) == 72);
struct CUlaunchConfig {
  unsigned gridX = 1, gridY = 1, gridZ = 1, blockX = 1, blockY = 1, blockZ = 1, sharedBytes = 0;
  CUstream stream = nullptr;
  CUlaunchAttribute* attributes = nullptr;
  unsigned attributeCount = 0;
};
static_assert(sizeof(CUlaunchConfig) == 56);
// The kernel may start before a kernel right before it in the stream has ended.
inline constexpr int kLaunchProgrammatic = 6;

// One table of driver functions: the name asked of cuGetProcAddress, the CUDA version whose signature this
// is, the symbol that has this signature in libcuda.so (for drivers where cuGetProcAddress is of no help),
// and the arguments. All return CUresult.
#define BRAID_CUDA_DRIVER_FUNCTIONS(X)                                                                      \
  X(cuInit, 2000, "cuInit", (unsigned flags))                                                               \
  X(cuDriverGetVersion, 2020, "cuDriverGetVersion", (int* version))                                         \
  X(cuGetErrorName, 6000, "cuGetErrorName", (CUresult code, const char** name))                             \
  X(cuGetErrorString, 6000, "cuGetErrorString", (CUresult code, const char** text))                         \
  X(cuDeviceGetCount, 2000, "cuDeviceGetCount", (int* count))                                               \
  X(cuDeviceGet, 2000, "cuDeviceGet", (CUdevice * device, int ordinal))                                     \
  X(cuDeviceGetName, 2000, "cuDeviceGetName", (char* name, int length, CUdevice device))                    \
  X(cuDeviceTotalMem, 3020, "cuDeviceTotalMem_v2", (std::size_t * bytes, CUdevice device))                  \
  X(cuDeviceGetAttribute, 2000, "cuDeviceGetAttribute", (int* value, int attribute, CUdevice device))       \
  X(cuDevicePrimaryCtxRetain, 7000, "cuDevicePrimaryCtxRetain", (CUcontext * context, CUdevice device))     \
  X(cuDevicePrimaryCtxRelease, 11000, "cuDevicePrimaryCtxRelease_v2", (CUdevice device))                    \
  X(cuDevicePrimaryCtxReset, 11000, "cuDevicePrimaryCtxReset_v2", (CUdevice device))                        \
  X(cuCtxSetCurrent, 4000, "cuCtxSetCurrent", (CUcontext context))                                          \
  X(cuCtxPushCurrent, 4000, "cuCtxPushCurrent_v2", (CUcontext context))                                     \
  X(cuCtxPopCurrent, 4000, "cuCtxPopCurrent_v2", (CUcontext * context))                                     \
  X(cuCtxGetStreamPriorityRange, 5050, "cuCtxGetStreamPriorityRange", (int* least, int* greatest))          \
  X(cuMemAlloc, 3020, "cuMemAlloc_v2", (CUdeviceptr * address, std::size_t bytes))                          \
  X(cuMemFree, 3020, "cuMemFree_v2", (CUdeviceptr address))                                                 \
  X(cuDeviceCanAccessPeer, 4000, "cuDeviceCanAccessPeer", (int* can, CUdevice device, CUdevice peer))       \
  X(cuCtxEnablePeerAccess, 4000, "cuCtxEnablePeerAccess", (CUcontext peer, unsigned flags))                 \
  X(cuMemGetInfo, 3020, "cuMemGetInfo_v2", (std::size_t * free, std::size_t * total))                       \
  X(cuMemHostAlloc, 2020, "cuMemHostAlloc", (void** pointer, std::size_t bytes, unsigned flags))            \
  X(cuMemFreeHost, 2000, "cuMemFreeHost", (void* pointer))                                                  \
  X(cuMemAddressReserve, 10020, "cuMemAddressReserve",                                                      \
    (CUdeviceptr * address, std::size_t bytes, std::size_t alignment, CUdeviceptr hint,                     \
     unsigned long long flags))                                                                             \
  X(cuMemAddressFree, 10020, "cuMemAddressFree", (CUdeviceptr address, std::size_t bytes))                  \
  X(cuMemCreate, 10020, "cuMemCreate",                                                                      \
    (CUpages * pages, std::size_t bytes, const CUmemAllocationProp* prop, unsigned long long flags))        \
  X(cuMemRelease, 10020, "cuMemRelease", (CUpages pages))                                                   \
  X(cuMemMap, 10020, "cuMemMap",                                                                            \
    (CUdeviceptr address, std::size_t bytes, std::size_t offset, CUpages pages, unsigned long long flags))  \
  X(cuMemUnmap, 10020, "cuMemUnmap", (CUdeviceptr address, std::size_t bytes))                              \
  X(cuMemSetAccess, 10020, "cuMemSetAccess",                                                                \
    (CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access, std::size_t count))             \
  X(cuMemGetAllocationGranularity, 10020, "cuMemGetAllocationGranularity",                                  \
    (std::size_t * granularity, const CUmemAllocationProp* prop, int option))                               \
  X(cuMemcpyAsync, 4000, "cuMemcpyAsync",                                                                   \
    (CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream))                                 \
  X(cuMemcpyHtoDAsync, 3020, "cuMemcpyHtoDAsync_v2",                                                        \
    (CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream))                                 \
  X(cuMemcpyDtoHAsync, 3020, "cuMemcpyDtoHAsync_v2",                                                        \
    (void* to, CUdeviceptr from, std::size_t bytes, CUstream stream))                                       \
  X(cuMemcpyDtoDAsync, 3020, "cuMemcpyDtoDAsync_v2",                                                        \
    (CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream))                                 \
  X(cuMemcpyPeerAsync, 4000, "cuMemcpyPeerAsync",                                                           \
    (CUdeviceptr to, CUcontext toContext, CUdeviceptr from, CUcontext fromContext, std::size_t bytes,       \
     CUstream stream))                                                                                      \
  X(cuMemsetD2D8Async, 3020, "cuMemsetD2D8Async",                                                           \
    (CUdeviceptr to, std::size_t pitch, unsigned char value, std::size_t width, std::size_t height,         \
     CUstream stream))                                                                                      \
  X(cuMemsetD2D16Async, 3020, "cuMemsetD2D16Async",                                                         \
    (CUdeviceptr to, std::size_t pitch, unsigned short value, std::size_t width, std::size_t height,        \
     CUstream stream))                                                                                      \
  X(cuMemsetD2D32Async, 3020, "cuMemsetD2D32Async",                                                         \
    (CUdeviceptr to, std::size_t pitch, unsigned value, std::size_t width, std::size_t height,              \
     CUstream stream))                                                                                      \
  X(cuMemsetD32Async, 3020, "cuMemsetD32Async",                                                             \
    (CUdeviceptr to, unsigned value, std::size_t words, CUstream stream))                                   \
  X(cuStreamCreateWithPriority, 5050, "cuStreamCreateWithPriority",                                         \
    (CUstream * stream, unsigned flags, int priority))                                                      \
  X(cuStreamDestroy, 4000, "cuStreamDestroy_v2", (CUstream stream))                                         \
  X(cuStreamSynchronize, 2000, "cuStreamSynchronize", (CUstream stream))                                    \
  X(cuStreamQuery, 2000, "cuStreamQuery", (CUstream stream))                                                \
  X(cuStreamWaitEvent, 3020, "cuStreamWaitEvent", (CUstream stream, CUevent event, unsigned flags))         \
  X(cuEventCreate, 2000, "cuEventCreate", (CUevent * event, unsigned flags))                                \
  X(cuEventDestroy, 4000, "cuEventDestroy_v2", (CUevent event))                                             \
  X(cuEventRecord, 2000, "cuEventRecord", (CUevent event, CUstream stream))                                 \
  X(cuEventQuery, 2000, "cuEventQuery", (CUevent event))                                                    \
  X(cuEventSynchronize, 2000, "cuEventSynchronize", (CUevent event))                                        \
  X(cuEventElapsedTime, 2000, "cuEventElapsedTime", (float* milliseconds, CUevent from, CUevent to))        \
  X(cuLaunchHostFunc, 10000, "cuLaunchHostFunc", (CUstream stream, CUhostFn function, void* data))          \
  X(cuModuleLoadDataEx, 2010, "cuModuleLoadDataEx",                                                         \
    (CUmodule * module, const void* image, unsigned count, int* options, void** values))                    \
  X(cuModuleUnload, 2000, "cuModuleUnload", (CUmodule module))                                              \
  X(cuModuleGetFunction, 2000, "cuModuleGetFunction",                                                       \
    (CUfunction * function, CUmodule module, const char* name))                                             \
  X(cuFuncGetAttribute, 2020, "cuFuncGetAttribute", (int* value, int attribute, CUfunction function))       \
  X(cuFuncSetAttribute, 9000, "cuFuncSetAttribute", (CUfunction function, int attribute, int value))        \
  X(cuLaunchKernel, 4000, "cuLaunchKernel",                                                                 \
    (CUfunction function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX, unsigned blockY, \
     unsigned blockZ, unsigned sharedBytes, CUstream stream, void** arguments, void** extra))               \
  X(cuLaunchKernelEx, 11060, "cuLaunchKernelEx",                                                            \
    (const CUlaunchConfig* launch, CUfunction function, void** arguments, void** extra))

struct DriverFunctions {
#define BRAID_FIELD(name, version, symbol, arguments) CUresult(*name) arguments = nullptr;
  BRAID_CUDA_DRIVER_FUNCTIONS(BRAID_FIELD)
#undef BRAID_FIELD
};

// Graphs. CUDA 12 gave several of these names to two signatures, and cuGetProcAddress picks by driver: so
// each is looked up by the one symbol that has this signature in every driver from CUDA 12.3 on. All or none.
using CUgraph = struct CUgraph_st*;
using CUgraphNode = struct CUgraphNode_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUuserObject = struct CUuserObject_st*;
using CUgraphConditionalHandle = std::uint64_t;
// Ports and types are 0 where the whole node before is waited for.
struct CUgraphEdgeData {
  std::uint8_t fromPort = 0, toPort = 0, type = 0, reserved[5] = {};
};
static_assert(sizeof(CUgraphEdgeData) == 8);

// CUmemorytype
inline constexpr int kMemoryHost = 1, kMemoryDevice = 2, kMemoryUnified = 4;
// Flags
inline constexpr unsigned kConditionAssign = 1, kUserObjectNoSync = 1, kUserObjectMove = 1,
                          kDependenciesAdd = 0, kDependenciesSet = 1;
inline constexpr std::uint64_t kInstantiatePriorities = 8;
// CUgraphMem_attribute
inline constexpr int kGraphMemoryUsed = 0, kGraphMemoryReserved = 2;
// CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
inline constexpr std::uint8_t kPortProgrammatic = 1, kDependencyProgrammatic = 1;

struct CUDA_MEMCPY3D {
  std::size_t srcXInBytes = 0, srcY = 0, srcZ = 0, srcLOD = 0;
  int srcMemoryType = 0;
  const void* srcHost = nullptr;
  CUdeviceptr srcDevice = 0;
  void* srcArray = nullptr;
  void* reserved0 = nullptr;
  std::size_t srcPitch = 0, srcHeight = 0;
  std::size_t dstXInBytes = 0, dstY = 0, dstZ = 0, dstLOD = 0;
  int dstMemoryType = 0;
  void* dstHost = nullptr;
  CUdeviceptr dstDevice = 0;
  void* dstArray = nullptr;
  void* reserved1 = nullptr;
  std::size_t dstPitch = 0, dstHeight = 0;
  std::size_t widthInBytes = 0, height = 0, depth = 0;
};
static_assert(sizeof(CUDA_MEMCPY3D) == 200);

struct CUDA_MEM_ALLOC_NODE_PARAMS {
  struct {
    int allocType = 1;    // CU_MEM_ALLOCATION_TYPE_PINNED
    int handleTypes = 0;  // not exported to other processes
    CUmemLocation location;
    void* win32SecurityAttributes = nullptr;
    std::size_t maxSize = 0;
    unsigned short usage = 0;
    unsigned char reserved[54] = {};
  } pool;
  const CUmemAccessDesc* access = nullptr;
  std::size_t accessCount = 0, bytes = 0;
  CUdeviceptr address = 0;  // the driver's answer
};
static_assert(sizeof(CUDA_MEM_ALLOC_NODE_PARAMS) == 120);

struct CUgraphNodeParams {
  int type = 0;
  int reserved0[3] = {};
  union {
    long long reserved1[29] = {};
    struct {
      CUfunction function;
      unsigned grid[3], block[3], sharedBytes;
      void** arguments;
      void** extra;
      void* kernel;
      CUcontext context;
    } kernel;
    struct {
      int flags, reserved;
      CUcontext context;
      CUDA_MEMCPY3D copy;
    } memcpy;
    struct {
      CUdeviceptr to;
      std::size_t pitch;
      unsigned value, elementBytes;
      std::size_t width, height;
      CUcontext context;
    } memset;
    struct {
      CUhostFn function;
      void* data;
    } host;
    struct {
      CUgraph graph;
      int ownership;
    } child;
    struct {
      CUevent event;
    } event;
    CUDA_MEM_ALLOC_NODE_PARAMS allocate;
    struct {
      CUdeviceptr address;
    } free;
    struct {
      CUgraphConditionalHandle handle;
      int type;
      unsigned size;
      CUgraph* bodies;  // the driver's own array
      CUcontext context;
    } conditional;
  };
  long long reserved2 = 0;
  CUgraphNodeParams() {}
};
static_assert(sizeof(CUgraphNodeParams) == 256);

struct CUDA_GRAPH_INSTANTIATE_PARAMS {
  std::uint64_t flags = 0;
  CUstream uploadStream = nullptr;
  CUgraphNode errorNode = nullptr;
  int result = 0;
};
static_assert(sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS) == 32);

struct CUgraphExecUpdateResultInfo {
  int result = 0;
  CUgraphNode errorNode = nullptr, errorFromNode = nullptr;
};
static_assert(sizeof(CUgraphExecUpdateResultInfo) == 24);

// The field, the symbol, the arguments. All return CUresult.
#define BRAID_CUDA_GRAPH_FUNCTIONS(X)                                                                        \
  X(create, cuGraphCreate, (CUgraph * graph, unsigned flags))                                                \
  X(destroy, cuGraphDestroy, (CUgraph graph))                                                                \
  X(clone, cuGraphClone, (CUgraph * clone, CUgraph graph))                                                   \
  X(findInClone, cuGraphNodeFindInClone, (CUgraphNode * node, CUgraphNode original, CUgraph clone))          \
  X(nodes, cuGraphGetNodes, (CUgraph graph, CUgraphNode * nodes, std::size_t * count))                       \
  X(edges, cuGraphGetEdges, (CUgraph graph, CUgraphNode * from, CUgraphNode * to, std::size_t * count))      \
  X(addEdges, cuGraphAddDependencies,                                                                        \
    (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, std::size_t count))                      \
  X(removeEdges, cuGraphRemoveDependencies,                                                                  \
    (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, std::size_t count))                      \
  X(dot, cuGraphDebugDotPrint, (CUgraph graph, const char* path, unsigned flags))                            \
  X(addNode, cuGraphAddNode_v2,                                                                              \
    (CUgraphNode * node, CUgraph graph, const CUgraphNode* dependencies, const CUgraphEdgeData* data,        \
     std::size_t count, CUgraphNodeParams* params))                                                          \
  X(memoryAttribute, cuDeviceGetGraphMemAttribute, (CUdevice device, int attribute, void* value))            \
  X(memoryTrim, cuDeviceGraphMemTrim, (CUdevice device))                                                     \
  X(destroyNode, cuGraphDestroyNode, (CUgraphNode node))                                                     \
  X(setParams, cuGraphNodeSetParams, (CUgraphNode node, CUgraphNodeParams * params))                         \
  X(type, cuGraphNodeGetType, (CUgraphNode node, int* type))                                                 \
  X(child, cuGraphChildGraphNodeGetGraph, (CUgraphNode node, CUgraph * graph))                               \
  X(condition, cuGraphConditionalHandleCreate,                                                               \
    (CUgraphConditionalHandle * handle, CUgraph graph, CUcontext context, unsigned initial, unsigned flags)) \
  X(captureBegin, cuStreamBeginCapture_v2, (CUstream stream, int mode))                                      \
  X(captureBeginOnto, cuStreamBeginCaptureToGraph,                                                           \
    (CUstream stream, CUgraph graph, const CUgraphNode* dependencies, const CUgraphEdgeData* data,           \
     std::size_t count, int mode))                                                                           \
  X(captureEnd, cuStreamEndCapture, (CUstream stream, CUgraph * graph))                                      \
  X(captureInfo, cuStreamGetCaptureInfo_v2,                                                                  \
    (CUstream stream, int* status, std::uint64_t* id, CUgraph* graph, const CUgraphNode** dependencies,      \
     std::size_t* count))                                                                                    \
  X(captureDependencies, cuStreamUpdateCaptureDependencies,                                                  \
    (CUstream stream, CUgraphNode * dependencies, std::size_t count, unsigned flags))                        \
  X(captureMode, cuThreadExchangeStreamCaptureMode, (int* mode))                                             \
  X(instantiate, cuGraphInstantiateWithParams,                                                               \
    (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS * params))                             \
  X(execDestroy, cuGraphExecDestroy, (CUgraphExec exec))                                                     \
  X(upload, cuGraphUpload, (CUgraphExec exec, CUstream stream))                                              \
  X(launch, cuGraphLaunch, (CUgraphExec exec, CUstream stream))                                              \
  X(execUpdate, cuGraphExecUpdate_v2,                                                                        \
    (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo * result))                                 \
  X(execSetParams, cuGraphExecNodeSetParams,                                                                 \
    (CUgraphExec exec, CUgraphNode node, CUgraphNodeParams * params))                                        \
  X(setEnabled, cuGraphNodeSetEnabled, (CUgraphExec exec, CUgraphNode node, unsigned enabled))               \
  X(getEnabled, cuGraphNodeGetEnabled, (CUgraphExec exec, CUgraphNode node, unsigned* enabled))              \
  X(userObjectCreate, cuUserObjectCreate,                                                                    \
    (CUuserObject * object, void* data, CUhostFn destroy, unsigned count, unsigned flags))                   \
  X(userObjectRetain, cuUserObjectRetain, (CUuserObject object, unsigned count))                             \
  X(userObjectRelease, cuUserObjectRelease, (CUuserObject object, unsigned count))                           \
  X(retain, cuGraphRetainUserObject, (CUgraph graph, CUuserObject object, unsigned count, unsigned flags))   \
  X(release, cuGraphReleaseUserObject, (CUgraph graph, CUuserObject object, unsigned count))

struct GraphFunctions {
#define BRAID_FIELD(field, symbol, arguments) CUresult(*field) arguments = nullptr;
  BRAID_CUDA_GRAPH_FUNCTIONS(BRAID_FIELD)
#undef BRAID_FIELD
  std::string missing;  // the first symbol that the driver lacks: then it has no graphs for Braid
};

}  // namespace braid::cuda
