#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace braid::cuda {

// What was measured for kernels, kept in a folder of the user, one file for each problem. A file is written
// under another name and then renamed, so that processes which measure the same at once leave one whole file.
// No lock is taken, and nothing is reported: what cannot be read or written is measured at each open.
class ChoiceFiles {
 public:
  // An empty folder keeps nothing.
  explicit ChoiceFiles(std::string folder) : folder_(std::move(folder)) {}

  // `problem` names all that decides the choice, in lines of text, of which the first says of what kind it
  // is. False unless its file is there and whole. A choice has `text()`, which are lines, and `parse(text)`.
  template <class Chosen>
  bool read(const std::string& problem, Chosen* chosen) const {
    std::string text;
    Chosen found;
    if (!readText(problem, &text) || !found.parse(text) || found.text() != text) return false;
    *chosen = std::move(found);
    return true;
  }
  template <class Chosen>
  void write(const std::string& problem, const Chosen& chosen) const {
    writeText(problem, chosen.text());
  }
  std::size_t count() const;

 private:
  bool readText(const std::string& problem, std::string* text) const;
  void writeText(const std::string& problem, const std::string& text) const;
  std::string pathOf(const std::string& problem) const;

  std::string folder_;
};

// FNV-1a.
std::uint64_t hashOf(const std::string& text);

// How many choices this process has measured.
std::uint64_t measuredChoices();
void countMeasured();

// $BRAID_CACHE/choices, or where that is not set the same below the user's cache folder ($XDG_CACHE_HOME,
// ~/.cache). Empty where BRAID_CACHE is `off`, or where the user has no folder.
std::string choiceFolder();

}  // namespace braid::cuda
