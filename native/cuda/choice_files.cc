#include "cuda/choice_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>

namespace braid::cuda {
namespace {

constexpr std::size_t kLargestChoice = 1 << 14;  // bytes; a file has less than one thousand
constexpr const char* kSuffix = ".choice";

std::string hexOf(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016" PRIx64, value);
  return text;
}

// The problem, what was chosen, and a checksum of both.
std::string choiceText(const std::string& problem, const MatmulChosen& chosen) {
  std::string text =
      problem + "few rows " + (chosen.few ? "1" : "0") + "\nsteps apart " + (chosen.apart ? "1" : "0") + "\n";
  for (const MatmulChoice& choice : chosen.choices) {
    text += "algorithm " + std::to_string(choice.alignment) + " " + std::to_string(choice.workspaceBytes);
    for (const std::uint32_t attribute : choice.attributes) text += " " + std::to_string(attribute);
    text += "\n";
  }
  return text + "check " + hexOf(hashOf(text)) + "\n";
}

// The checksum is not looked at here: the caller writes what was found again, and compares.
bool parseChoice(const std::string& rest, MatmulChosen* chosen) {
  std::istringstream lines(rest);
  std::string word, second;
  if (!(lines >> word >> second >> chosen->few >> word >> second >> chosen->apart)) return false;
  while (lines >> word && word == "algorithm") {
    MatmulChoice choice;
    lines >> choice.alignment >> choice.workspaceBytes;
    for (std::uint32_t& attribute : choice.attributes) lines >> attribute;
    if (!lines) return false;
    chosen->choices.push_back(choice);
  }
  return true;
}

struct OpenFile {
  int handle;
  explicit OpenFile(int opened) : handle(opened) {}
  ~OpenFile() {
    if (handle >= 0) ::close(handle);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
};

// Without waiting: opening a pipe that nobody writes would block.
bool readWhole(const std::string& path, std::string* text) {
  const OpenFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about;
  if (file.handle < 0 || ::fstat(file.handle, &about) != 0 || !S_ISREG(about.st_mode)) return false;
  if (about.st_size <= 0 || static_cast<std::size_t>(about.st_size) > kLargestChoice) return false;
  text->resize(static_cast<std::size_t>(about.st_size));
  return ::read(file.handle, text->data(), text->size()) == static_cast<ssize_t>(text->size());
}

bool writeWhole(const std::string& path, const std::string& text) {
  OpenFile file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (file.handle < 0) return false;
  const bool whole = ::write(file.handle, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int handle = std::exchange(file.handle, -1);
  return ::close(handle) == 0 && whole;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

std::uint64_t hashOf(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char each : text) hash = (hash ^ static_cast<unsigned char>(each)) * 0x100000001b3;
  return hash;
}

std::string ChoiceFiles::pathOf(const std::string& problem) const {
  return folder_ + "/" + hexOf(hashOf(problem)) + kSuffix;
}

bool ChoiceFiles::read(const std::string& problem, MatmulChosen* chosen) const {
  if (folder_.empty()) return false;
  std::string text;
  if (!readWhole(pathOf(problem), &text) || text.compare(0, problem.size(), problem) != 0) return false;
  MatmulChosen found;
  if (!parseChoice(text.substr(problem.size()), &found) || choiceText(problem, found) != text) return false;
  *chosen = std::move(found);
  return true;
}

void ChoiceFiles::write(const std::string& problem, const MatmulChosen& chosen) const {
  if (folder_.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(folder_, ignored);
  static std::atomic<std::uint64_t> written{0};
  const std::string path = pathOf(problem),
                    whole = path + "." + std::to_string(::getpid()) + "." + std::to_string(++written);
  if (!writeWhole(whole, choiceText(problem, chosen)) || std::rename(whole.c_str(), path.c_str()) != 0)
    ::unlink(whole.c_str());
}

std::size_t ChoiceFiles::count() const {
  namespace fs = std::filesystem;
  std::error_code error;
  std::size_t found = 0;
  if (folder_.empty()) return 0;
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error))
    found += at->path().extension() == kSuffix ? 1 : 0;
  return found;
}

std::string choiceFolder() {
  const std::string own = environment("BRAID_CACHE"), users = environment("XDG_CACHE_HOME"),
                    home = environment("HOME");
  if (own == "off") return "";
  if (!own.empty()) return own + "/products";
  if (users.starts_with('/')) return users + "/braid/products";  // a relative one is to be ignored
  return home.empty() ? "" : home + "/.cache/braid/products";
}

}  // namespace braid::cuda
