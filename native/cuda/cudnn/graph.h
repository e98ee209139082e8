#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cuda/context.h"
#include "cuda/cudnn/choice.h"
#include "driver/driver.h"

namespace braid::cuda {

// cuDNN's handle on one device. Kernels keep a share.
struct CudnnSession {
  std::shared_ptr<Context> context;
  std::shared_ptr<const CudnnLibrary> library;
  CudnnHandle handle = nullptr;
  std::mutex mutex;  // the stream is a property of the handle: held from setting it to the launch
  ~CudnnSession();
  // Null where the library is missing, too old or does not start.
  static std::shared_ptr<CudnnSession> open(std::shared_ptr<Context> context,
                                            const std::vector<std::string>& paths);
};

// A descriptor of the graph interface. Its attributes are set, then it is finalized. After a call that failed
// it is not good, and further ones do nothing.
class CudnnDescriptor {
 public:
  CudnnDescriptor(const CudnnFunctions& call, int kind);
  CudnnDescriptor(CudnnDescriptor&& other) noexcept;
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept;
  ~CudnnDescriptor();

  CudnnDescriptor& set(int attribute, int type, std::int64_t count, const void* values);
  CudnnDescriptor& number(int attribute, std::int64_t value);
  CudnnDescriptor& numbers(int attribute, std::span<const std::int64_t> values);
  CudnnDescriptor& chosen(int attribute, int type, std::int32_t value);  // of an enumeration
  CudnnDescriptor& flag(int attribute);
  CudnnDescriptor& part(int attribute, const CudnnDescriptor& other);
  CudnnDescriptor& finalize();
  // How many values there are, of which up to `most` are written; negative after a failure.
  std::int64_t read(int attribute, int type, std::int64_t most, void* values) const;

  bool good() const { return good_; }
  CudnnRaw raw() const { return raw_; }

 private:
  const CudnnFunctions* call_;
  CudnnRaw raw_ = nullptr;
  bool good_ = false;
};

// An engine that the library offers for a graph.
struct CudnnOffer {
  CudnnEngine engine;
  CudnnDescriptor config;
};

// The same made ready to run; keeps the offer, of which the library says nothing.
struct CudnnPlan {
  CudnnOffer offer;
  CudnnDescriptor plan;
  std::size_t workspace = 0;  // bytes of scratch that it takes
  std::size_t pieces = 0;     // nodes that a graph has of one launch; 0: not tried
};

// Operations on tensors. Those in memory are the problem's operands, in the order in which they are made;
// others are numbers, which a launch passes by value, or lie between two operations and are never stored.
class CudnnGraph {
 public:
  using Tensor = std::size_t;
  using Sizes = std::vector<std::int64_t>;

  explicit CudnnGraph(std::shared_ptr<CudnnSession> session) : session_(std::move(session)) {}
  CudnnGraph(const CudnnGraph&) = delete;
  CudnnGraph& operator=(const CudnnGraph&) = delete;

  // Types are cudnnDataType_t; memory is aligned to 16 bytes.
  Tensor memory(int type, const Sizes& sizes, const Sizes& strides);
  Tensor memory(int type, const Sizes& sizes);  // rows one after the other
  Tensor sums(const Sizes& sizes);              // memory of f32 that is written; no product reads it
  Tensor between(int type, const Sizes& sizes);
  Tensor number(float value);
  Tensor number(std::int32_t value);

  // y = a mode b, or mode(a), or a where `where` holds, else b. The result is new, of the sizes of a, or
  // `into`.
  struct Pointwise {
    int mode, precision, type;  // type: of the result
    Tensor a;
    Tensor b = kNone, where = kNone, into = kNone;
    std::int64_t axis = -1;
  };
  Tensor pointwise(const Pointwise& operation);
  // Along the last dimension.
  Tensor reduce(int how, Tensor x);
  void matmul(Tensor a, Tensor b, Tensor c);
  void convolution(CudnnDescriptor convolution, Tensor x, Tensor w, Tensor y);

  // The last step: no operation comes after it. False where the library refused any part of the graph.
  bool finish();
  // Engines for the graph, best first by the library's own estimate, then those that it falls back to,
  // without those whose sums are not of f32 or depend on timing.
  std::vector<CudnnOffer> offers(int most) const;
  std::optional<CudnnPlan> plan(CudnnOffer offer) const;
  // The kernels of a plan, on memory of the operands. From any thread.
  Status launch(const CudnnPlan& plan, std::span<const DeviceAddress> operands, DeviceAddress workspace,
                CUstream stream) const;

  CudnnDescriptor made(int kind) const { return {session_->library->call, kind}; }
  CudnnSession& session() const { return *session_; }

 private:
  static constexpr Tensor kNone = static_cast<Tensor>(-1);
  struct About {
    CudnnDescriptor descriptor;
    Sizes sizes;
  };
  // `flag` is an attribute that is set, or negative.
  Tensor tensor(int type, const Sizes& sizes, const Sizes& strides, std::int64_t alignment, int flag);
  Tensor byValue(int type, std::uint32_t bits);
  void operation(CudnnDescriptor operation);
  bool isAllowed(const CudnnDescriptor& engine) const;
  Status check(cudnnStatus code, const char* call, CUstream stream) const;

  std::shared_ptr<CudnnSession> session_;
  bool good_ = true;
  std::vector<About> tensors_;
  std::vector<CudnnDescriptor> parts_;  // what operations are described by
  std::vector<CudnnDescriptor> operations_;
  std::vector<CudnnDescriptor> graph_;  // one, from `finish` on
  std::deque<std::uint32_t> numbers_;   // at addresses that stay
  std::vector<std::int64_t> operandIds_, numberIds_;
  bool f32_ = false;  // an operand is: tensor cores would round it
};

int cudnnType(DType type);

}  // namespace braid::cuda
