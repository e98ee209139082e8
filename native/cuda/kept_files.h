#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace braid::cuda {

// Results that take time to compute, kept in a folder of the user for the next process, one file for each
// problem. A file is written under another name and then renamed, so that processes which write the same
// at once leave one whole file. No lock is taken: what cannot be read or written is made at each open.
//
// Hazard: code that is found here runs with the user's rights. Rule: the folder and the file belong to the
// effective user, nobody else may write them, and SHA-256 of the content is as it was written. What fails a
// check is made again, and `keptProblems` says so once for each folder.
class KeptFiles {
 public:
  struct Limits {
    std::size_t bytes = 1 << 14;  // of one file
    std::size_t files = 1 << 14;  // beyond them nothing more is kept
  };
  // An empty folder keeps nothing.
  KeptFiles(std::string folder, const char* suffix, Limits limits)
      : folder_(std::move(folder)), suffix_(suffix), limits_(limits) {}

  // `problem` names all that decides the content, in lines of text, of which the first says of what kind it
  // is. False unless its file is there and whole.
  bool find(const std::string& problem, std::string* content) const;
  void keep(const std::string& problem, const std::string& content) const;
  std::size_t count() const;
  // Why the folder is not used; empty where it is, or is not there yet.
  std::string refusal() const;

 private:
  std::string nameOf(const std::string& problem) const;
  void refused(const std::string& why) const;

  std::string folder_;
  const char* suffix_;
  Limits limits_;
  // The number of files, counted before the first one is kept. Files that other processes add later are not
  // in it.
  mutable std::atomic<std::size_t> there_{0};
};

// Choices of algorithms that were measured. A choice has `text()`, which are lines, and `parse(text)`.
class ChoiceFiles : public KeptFiles {
 public:
  explicit ChoiceFiles(std::string folder) : KeptFiles(std::move(folder), ".choice", {}) {}
  template <class Chosen>
  bool read(const std::string& problem, Chosen* chosen) const {
    std::string text;
    Chosen found;
    if (!find(problem, &text) || !found.parse(text) || found.text() != text) return false;
    *chosen = std::move(found);
    return true;
  }
  template <class Chosen>
  void write(const std::string& problem, const Chosen& chosen) const {
    keep(problem, chosen.text());
  }
};

// Machine code of generated kernels.
class CodeFiles : public KeptFiles {
 public:
  explicit CodeFiles(std::string folder) : KeptFiles(std::move(folder), ".kernel", {1 << 22, 1 << 13}) {}
};

// Why kept files were not used, a line for each folder, since the last call. Any thread.
std::vector<std::string> keptProblems();

// How many choices this process has measured.
std::uint64_t measuredChoices();
void countMeasured();

// How many generated kernels this process has compiled.
std::uint64_t compiledKernels();
void countCompiled();

// $BRAID_CACHE/NAME, or where that is not set the same below the user's cache folder ($XDG_CACHE_HOME,
// ~/.cache). Empty where BRAID_CACHE is `off`, or where the user has no folder.
std::string cacheFolder(const std::string& name);

}  // namespace braid::cuda
