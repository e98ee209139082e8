#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "cuda/matmul_choice.h"

namespace braid::cuda {

// What was measured for products, kept in a folder of the user, one file for each problem. A file is written
// under another name and then renamed, so that processes which measure the same at once leave one whole file.
// No lock is taken, and nothing is reported: what cannot be read or written is measured at each open.
class ChoiceFiles {
 public:
  // An empty folder keeps nothing.
  explicit ChoiceFiles(std::string folder) : folder_(std::move(folder)) {}

  // `problem` names all that decides the choice, in lines of text. False unless its file is there and whole.
  bool read(const std::string& problem, MatmulChosen* chosen) const;
  void write(const std::string& problem, const MatmulChosen& chosen) const;
  std::size_t count() const;

 private:
  std::string pathOf(const std::string& problem) const;

  std::string folder_;
};

// FNV-1a.
std::uint64_t hashOf(const std::string& text);

// $BRAID_CACHE/products, or where that is not set the same below the user's cache folder ($XDG_CACHE_HOME,
// ~/.cache). Empty where BRAID_CACHE is `off`, or where the user has no folder.
std::string choiceFolder();

}  // namespace braid::cuda
