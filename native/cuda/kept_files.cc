#include "cuda/kept_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace braid::cuda {
namespace {

std::string hexOf(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016" PRIx64, value);
  return text;
}

std::atomic<std::uint64_t> measured{0}, compiled{0};

// The last line of a file: of all before it.
std::string checkOf(const std::string& text) { return "check " + hexOf(hashOf(text)) + "\n"; }

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
bool readWhole(const std::string& path, std::size_t most, std::string* text) {
  const OpenFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about;
  if (file.handle < 0 || ::fstat(file.handle, &about) != 0 || !S_ISREG(about.st_mode)) return false;
  if (about.st_size <= 0 || static_cast<std::size_t>(about.st_size) > most) return false;
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

std::string KeptFiles::pathOf(const std::string& problem) const {
  return folder_ + "/" + hexOf(hashOf(problem)) + suffix_;
}

bool KeptFiles::find(const std::string& problem, std::string* content) const {
  std::string whole;
  if (folder_.empty() || !readWhole(pathOf(problem), limits_.bytes, &whole) || !whole.starts_with(problem))
    return false;
  const std::size_t last = checkOf("").size();
  if (whole.size() < problem.size() + last) return false;
  const std::string before = whole.substr(0, whole.size() - last);
  if (before + checkOf(before) != whole) return false;
  *content = before.substr(problem.size());
  return true;
}

void KeptFiles::keep(const std::string& problem, const std::string& content) const {
  const std::string text = problem + content;
  if (folder_.empty() || text.size() + checkOf("").size() > limits_.bytes) return;
  if (there_ == 0) there_ = count();
  if (there_++ >= limits_.files) return;
  std::error_code ignored;
  std::filesystem::create_directories(folder_, ignored);
  static std::atomic<std::uint64_t> written{0};
  const std::string path = pathOf(problem),
                    whole = path + "." + std::to_string(::getpid()) + "." + std::to_string(++written);
  if (!writeWhole(whole, text + checkOf(text)) || std::rename(whole.c_str(), path.c_str()) != 0)
    ::unlink(whole.c_str());
}

std::size_t KeptFiles::count() const {
  namespace fs = std::filesystem;
  std::error_code error;
  std::size_t found = 0;
  if (folder_.empty()) return 0;
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error))
    found += at->path().extension() == suffix_ ? 1 : 0;
  return found;
}

std::uint64_t measuredChoices() { return measured; }

void countMeasured() { ++measured; }

std::uint64_t compiledKernels() { return compiled; }

void countCompiled() { ++compiled; }

std::string cacheFolder(const std::string& name) {
  const std::string own = environment("BRAID_CACHE"), users = environment("XDG_CACHE_HOME"),
                    home = environment("HOME");
  if (own == "off") return "";
  if (!own.empty()) return own + "/" + name;
  if (users.starts_with('/')) return users + "/braid/" + name;  // a relative one is to be ignored
  return home.empty() ? "" : home + "/.cache/braid/" + name;
}

}  // namespace braid::cuda
