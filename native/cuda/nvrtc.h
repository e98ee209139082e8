#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "cuda/kept_files.h"
#include "cuda/module.h"

namespace braid::cuda {

// Compiles CUDA C++ for one device, once for each distinct source. The library is opened at the first
// compilation, so that a plan of copies and matrix products needs no NVRTC.
class Compiler {
 public:
  // `folder`: where the code of generated kernels is kept for the next process; empty: nowhere.
  Compiler(std::shared_ptr<Context> context, std::vector<std::string> paths, std::string folder);

  // Generated: arithmetic exactly as written (no contraction, division and square root correctly rounded).
  // User: CUDA's defaults, every instruction of the very device, the toolkit's headers where they are
  // installed.
  enum class Flavor { generated, user };
  // `title` stands in the log's messages as the file. On failure the detail holds the compiler's log.
  Status compile(const std::string& source, const std::string& title, Flavor flavor,
                 std::shared_ptr<Module>* module);

 private:
  Status ready();
  // Code that an earlier process kept. Whatever is wrong with it, it is compiled anew.
  bool loadKept(const std::string& name, std::shared_ptr<Module>* module) const;
  // All that the code of a generated kernel follows from.
  std::string nameOf(const std::string& source) const;
  Status build(const std::string& source, const std::string& title, Flavor flavor, std::string* image);
  std::vector<std::string> optionsFor(Flavor flavor, bool* binary) const;

  std::shared_ptr<Context> context_;
  std::vector<std::string> paths_;
  const CodeFiles files_;
  std::shared_ptr<const NvrtcLibrary> library_;
  std::mutex mutex_;  // NVRTC itself may be entered by many threads; the cache may not
  std::map<std::pair<Flavor, std::string>, std::shared_ptr<Module>> modules_;
};

}  // namespace braid::cuda
