#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "cuda/kernel.h"
#include "cuda/nvrtc.h"
#include "cuda/queues.h"
#include "driver/driver.h"

namespace braid::cuda {

class Blas;
class CudnnKernels;

// The driver table over one CUDA device's primary context. A Stream is a CUstream, an Event a CUevent, Pages
// the driver's handle, each passed through as it is.
class CudaDriver : public Driver {
 public:
  static Status open(int ordinal, const LibraryPaths& paths, std::unique_ptr<Driver>* driver);
  ~CudaDriver() override;

  const DeviceInfo& info() const override { return info_; }
  Status bind() override;
  // Keeps the device's primary context until the process ends, as the CUDA runtime does: making one takes
  // an eighth of a second, and seconds where several processes use the GPU.
  void keepContext();
  std::string lastDetail() override;

  Status memAllocate(DeviceAddress* address, std::size_t bytes) override;
  Status memFree(DeviceAddress address) override;
  Status memInfo(std::size_t* freeBytes, std::size_t* totalBytes) override;
  Status pinnedAllocate(void** pointer, std::size_t bytes) override;
  Status pinnedFree(void* pointer) override;

  Status addressReserve(DeviceAddress* address, std::size_t bytes) override;
  Status addressRelease(DeviceAddress address, std::size_t bytes) override;
  Status pagesCreate(Pages* pages, std::size_t bytes) override;
  Status pagesRelease(Pages pages) override;
  Status pagesMap(DeviceAddress address, std::size_t bytes, Pages pages) override;
  Status pagesMapEach(DeviceAddress address, std::size_t each, const Pages* pages,
                      std::size_t count) override;
  Status pagesUnmap(DeviceAddress address, std::size_t bytes) override;

  Status streamCreate(Stream* stream, int priority) override;
  Status streamDestroy(Stream stream) override;
  Status streamSynchronize(Stream stream) override;
  Status streamQuery(Stream stream) override;
  std::size_t streamDepth() const override { return Queues::of(info_.ordinal).streamDepth(); }
  // The driver does not report it. Behind work that stands still, an H200 blocked within 200 launches of one
  // executable; the 24 launches that this allows beside up to 8 streams did not block.
  std::size_t launchPieces() const override { return 32; }
  Status streamWait(Stream stream, Event event) override;
  Status eventCreate(Event* event, EventKind kind) override;
  Status eventDestroy(Event event) override;
  Status eventRecord(Event event, Stream stream) override;
  Status eventQuery(Event event) override;
  Status eventSynchronize(Event event) override;
  Status eventElapsed(float* milliseconds, Event from, Event to) override;

  Status copy(CopyKind kind, DeviceAddress to, DeviceAddress from, std::size_t bytes, Stream stream) override;
  Status fill32(DeviceAddress to, std::uint32_t value, std::size_t words, Stream stream) override;
  Status fill(const NodeParams& fill, Stream stream) override;
  Status prepare(std::unique_ptr<Kernel>* kernel, const KernelSpec& spec, HostCallback callback) override;
  Status launch(const Kernel& kernel, const DeviceAddress* reads, const DeviceAddress* writes,
                Stream stream) override;
  Status hostFunction(Stream stream, void (*function)(void*), void* data) override;
  Status prepareCondition(std::unique_ptr<Kernel>* kernel) override;
  Status reachPeer(Driver& other) override;
  Status preparePeerCopy(std::unique_ptr<Kernel>* kernel, std::size_t bytes, Driver* from,
                         Driver* to) override;

  Status graphCreate(Graph* graph) override;
  Status graphDestroy(Graph graph) override;
  Status graphClone(Graph* clone, Graph graph) override;
  Status graphFindInClone(GraphNode* node, GraphNode original, Graph clone) override;
  Status graphNodes(Graph graph, std::vector<GraphNode>* nodes) override;
  Status graphEdges(Graph graph, std::vector<GraphEdge>* edges) override;
  Status graphAddEdges(Graph graph, const GraphEdge* edges, std::size_t count) override;
  Status graphRemoveEdges(Graph graph, const GraphEdge* edges, std::size_t count) override;
  Status graphDot(Graph graph, std::string* text) override;
  Status nodeAdd(GraphNode* node, Graph graph, const GraphNode* dependencies, std::size_t count,
                 const NodeParams& params) override;
  Status nodeDestroy(GraphNode node) override;
  Status nodeUpdate(GraphNode node, const NodeParams& params) override;
  Status nodeKind(GraphNode node, NodeKind* kind) override;
  Status nodeChild(GraphNode node, Graph* child) override;
  Status nodeAddAllocation(GraphNode* node, Graph graph, const GraphNode* dependencies, std::size_t count,
                           std::size_t bytes, DeviceAddress* address) override;
  Status graphMemory(std::size_t* used, std::size_t* reserved) override;
  Status graphMemoryTrim() override;
  Status conditionCreate(Condition* condition, Graph graph, bool assign, std::uint32_t initial) override;
  Status nodeAddConditional(GraphNode* node, Graph graph, const GraphNode* dependencies, std::size_t count,
                            Condition condition, ConditionalKind kind, Graph* bodies,
                            std::size_t bodyCount) override;
  Status captureBegin(Stream stream, CaptureMode mode) override;
  Status captureBeginOnto(Stream stream, Graph onto, const GraphNode* dependencies, std::size_t count,
                          CaptureMode mode) override;
  Status captureEnd(Stream stream, Graph* graph) override;
  Status captureInfo(Stream stream, CaptureInfo* info) override;
  Status captureDependencies(Stream stream, const GraphNode* nodes, std::size_t count, bool add) override;
  Status captureModeExchange(CaptureMode* mode) override;
  Status graphInstantiate(GraphExec* exec, Graph graph, const InstantiateOptions& options,
                          InstantiateResult* result) override;
  Status execDestroy(GraphExec exec) override;
  Status execUpload(GraphExec exec, Stream stream) override;
  Status execLaunch(GraphExec exec, Stream stream) override;
  Status execUpdate(GraphExec exec, Graph graph, UpdateResult* result) override;
  Status execNodeUpdate(GraphExec exec, GraphNode node, const NodeParams& params) override;
  Status execNodeEnable(GraphExec exec, GraphNode node, bool enabled) override;
  Status execNodeEnabled(GraphExec exec, GraphNode node, bool* enabled) override;
  Status userObjectCreate(UserObject* object, void (*destroy)(void*), void* data, unsigned count) override;
  Status userObjectRetain(UserObject object, unsigned count) override;
  Status userObjectRelease(UserObject object, unsigned count) override;
  Status graphRetain(Graph graph, UserObject object, unsigned count, bool move) override;
  Status graphRelease(Graph graph, UserObject object, unsigned count) override;

 private:
  CudaDriver(std::shared_ptr<Context> context, const LibraryPaths& paths);
  Multiprocessors multiprocessors() const;
  Status prepareSource(const KernelSource& source, std::size_t readCount, const char* title,
                       std::unique_ptr<Kernel>* kernel);

  // Which other devices access pages of this one, and where its pages are mapped: access is given to each
  // range. `pagesMap` and `reachPeer` come from several threads.
  Status allow(CUdevice reader);
  Status setAccess(DeviceAddress address, std::size_t bytes);
  void forgetMapped(DeviceAddress address, std::size_t bytes);
  std::mutex mappedMutex_;
  std::vector<CUdevice> readers_;
  std::map<DeviceAddress, std::size_t> mapped_;

  // Ok where the driver has all of the graph functions.
  Status haveGraphs() const;
  Status nodeParams(const NodeParams& params, KernelNode* node) const;

  std::shared_ptr<Context> context_;
  const DriverFunctions& call_;
  const GraphFunctions& graph_;
  DeviceInfo info_;
  CUmemAllocationProp pageProperties_;
  std::shared_ptr<Compiler> compiler_;
  std::shared_ptr<Blas> blas_;
  std::shared_ptr<CudnnKernels> cudnn_;
};

// A device's name, size and numbers; whether its context is current or not. Used by the driver and by
// `doctor`.
Status readDeviceInfo(const Context& context, int ordinal, DeviceInfo* info);

}  // namespace braid::cuda
