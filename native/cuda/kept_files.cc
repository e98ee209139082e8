#include "cuda/kept_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <set>

#include "cuda/digest.h"

namespace braid::cuda {
namespace {

std::atomic<std::uint64_t> measured{0}, compiled{0};

// The last line of a file: of all before it.
std::string checkOf(const std::string& text) { return "sha256 " + digestOf(text) + "\n"; }

struct OpenFile {
  int handle;
  explicit OpenFile(int opened) : handle(opened) {}
  ~OpenFile() {
    if (handle >= 0) ::close(handle);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
};

// What was refused. The sentences are few: one for each folder.
class Problems {
 public:
  void add(const std::string& folder, const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (folders_.insert(folder).second) waiting_.push_back(why);
  }
  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(waiting_, {});
  }

 private:
  std::mutex mutex_;
  std::set<std::string> folders_;
  std::vector<std::string> waiting_;
};

Problems& problems() {
  static Problems all;
  return all;
}

// Whoever may write here decides which code runs. Empty where that is the effective user alone.
std::string refusalOf(const std::string& path, const struct stat& about) {
  if (about.st_uid != ::geteuid())
    return path + " belongs to user " + std::to_string(about.st_uid) + ", and this process runs as user " +
           std::to_string(::geteuid());
  if ((about.st_mode & (S_IWGRP | S_IWOTH)) == 0) return "";
  char mode[8];
  std::snprintf(mode, sizeof(mode), "%04o", static_cast<unsigned>(about.st_mode & 07777));
  return path + " may be written by users other than its owner (mode " + mode + ")";
}

// Opens the folder of kept files; below 0 where it is not there or may not be used, and then *why says so.
// The path may hold links: the owner of the folder itself counts.
int openFolder(const std::string& path, std::string* why) {
  const int handle = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  struct stat about;
  if (handle < 0) return handle;
  if (digestOf("").empty())
    *why = path + " cannot be checked: this process has no OpenSSL (libcrypto)";
  else if (::fstat(handle, &about) != 0)
    *why = path + " cannot be examined";
  else
    *why = refusalOf(path, about);
  if (why->empty()) return handle;
  ::close(handle);
  return -1;
}

// Folders that are missing are made for the user alone.
void makeFolders(const std::string& path) {
  for (std::size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1))
    ::mkdir(path.substr(0, end).c_str(), 0700);
  ::mkdir(path.c_str(), 0700);
}

enum class Found { nothing, whole, refused };

// Without waiting: opening a pipe that nobody writes would block.
Found readWhole(int folder, const std::string& name, std::size_t most, std::string* text, std::string* why) {
  const OpenFile file(::openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (file.handle < 0 && errno == ENOENT) return Found::nothing;
  struct stat about;
  if (file.handle < 0 || ::fstat(file.handle, &about) != 0 || !S_ISREG(about.st_mode)) {
    *why = name + " is not a regular file that can be read";
    return Found::refused;
  }
  *why = refusalOf(name, about);
  if (!why->empty()) return Found::refused;
  *why = name + " is not as it was written";
  if (about.st_size <= 0 || static_cast<std::size_t>(about.st_size) > most) return Found::refused;
  text->resize(static_cast<std::size_t>(about.st_size));
  const ssize_t read = ::read(file.handle, text->data(), text->size());
  return read == static_cast<ssize_t>(text->size()) ? Found::whole : Found::refused;
}

bool writeWhole(int folder, const std::string& name, const std::string& text) {
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  OpenFile file(::openat(folder, name.c_str(), flags, 0600));
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

std::string KeptFiles::nameOf(const std::string& problem) const { return digestOf(problem) + suffix_; }

void KeptFiles::refused(const std::string& why) const {
  if (!why.empty()) problems().add(folder_, why);
}

std::string KeptFiles::refusal() const {
  std::string why;
  if (!folder_.empty()) const OpenFile folder(openFolder(folder_, &why));
  return why;
}

bool KeptFiles::find(const std::string& problem, std::string* content) const {
  if (folder_.empty()) return false;
  std::string why, whole;
  const OpenFile folder(openFolder(folder_, &why));
  if (folder.handle < 0) return refused(why), false;
  const Found found = readWhole(folder.handle, nameOf(problem), limits_.bytes, &whole, &why);
  if (found == Found::nothing) return false;
  const std::size_t last = checkOf("").size();
  if (found == Found::whole && whole.size() >= problem.size() + last && whole.starts_with(problem)) {
    const std::string before = whole.substr(0, whole.size() - last);
    if (before + checkOf(before) == whole) return *content = before.substr(problem.size()), true;
  }
  refused(folder_ + "/" + why);
  return false;
}

void KeptFiles::keep(const std::string& problem, const std::string& content) const {
  const std::string text = problem + content;
  if (folder_.empty() || text.size() + checkOf("").size() > limits_.bytes) return;
  if (there_ == 0) there_ = count();
  if (there_++ >= limits_.files) return;
  makeFolders(folder_);
  std::string why;
  const OpenFile folder(openFolder(folder_, &why));
  if (folder.handle < 0) return refused(why);
  static std::atomic<std::uint64_t> written{0};
  const std::string name = nameOf(problem),
                    whole = name + "." + std::to_string(::getpid()) + "." + std::to_string(++written);
  if (!writeWhole(folder.handle, whole, text + checkOf(text)) ||
      ::renameat(folder.handle, whole.c_str(), folder.handle, name.c_str()) != 0)
    ::unlinkat(folder.handle, whole.c_str(), 0);
}

std::vector<std::string> keptProblems() { return problems().take(); }

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
