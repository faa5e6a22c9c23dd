#include "session/output.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pasta {
namespace {

constexpr const char* kIdName = "/recording.id";

std::string read_text(const std::string& path) {
  std::string text;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  char block[256];
  const ssize_t n = ::read(fd, block, sizeof(block));
  ::close(fd);
  if (n > 0) text.assign(block, static_cast<size_t>(n));
  return text;
}

bool write_new(const std::string& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return false;
  const bool whole = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(fd);
  return whole;
}

// Processes of one recording race to name its owner: link() lets exactly one win, with its text whole.
std::string claim(const std::string& directory, const std::string& recording) {
  const std::string id = directory + kIdName;
  if (std::string owner = read_text(id); !owner.empty()) return owner;
  const std::string mine = id + "." + std::to_string(::getpid());
  if (write_new(mine, recording)) {
    const int linked = ::link(mine.c_str(), id.c_str());
    ::unlink(mine.c_str());
    if (linked == 0) return recording;
  }
  return read_text(id);
}

bool has_entries(const std::string& directory) {
  DIR* dir = ::opendir(directory.c_str());
  if (dir == nullptr) return false;
  bool found = false;
  while (const dirent* entry = ::readdir(dir)) {
    found = found || entry->d_name[0] != '.';
  }
  ::closedir(dir);
  return found;
}

std::string occupied(const std::string& path) {
  return path + " already exists; pass --force-overwrite (PASTA_FORCE=1) or another --output";
}

// Empty on success.
std::string prepare_directory(const Options& options, const std::string& path) {
  if (::mkdir(path.c_str(), 0777) != 0) {
    const int error = errno;
    struct stat status;
    if (error != EEXIST || ::stat(path.c_str(), &status) != 0) {
      return "cannot create " + path + ": " + std::strerror(error);
    }
    if (!S_ISDIR(status.st_mode)) {
      if (!options.force) return occupied(path);
      if (::unlink(path.c_str()) != 0 || ::mkdir(path.c_str(), 0777) != 0) {
        return "cannot replace " + path + ": " + std::strerror(errno);
      }
    } else if (read_text(path + kIdName).empty() && has_entries(path)) {
      return path + " is a directory that holds something else; pass another --output";
    }
  }
  if (claim(path, options.recording) != options.recording) return occupied(path);
  return {};
}

}  // namespace

std::string expand_output(std::string_view pattern, const Identity& identity, int32_t pid) {
  const auto number = [](int32_t value) { return value == kNullI32 ? std::string() : std::to_string(value); };
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size()) {
      out += pattern[i];
      continue;
    }
    switch (pattern[++i]) {
      case 'p': out += std::to_string(pid); break;
      case 'h': out += identity.host; break;
      case 'r': out += number(identity.rank); break;
      case 'l': out += number(identity.local_rank); break;
      case '%': out += '%'; break;
      case 'q': {
        const size_t close = pattern.find('}', i);
        if (i + 1 < pattern.size() && pattern[i + 1] == '{' && close != std::string_view::npos) {
          const char* value = std::getenv(std::string(pattern.substr(i + 2, close - i - 2)).c_str());
          if (value != nullptr) out += value;
          i = close;
          break;
        }
        [[fallthrough]];
      }
      default:
        out += '%';
        out += pattern[i];
    }
  }
  return out;
}

bool write_whole(const std::string& path, const void* data, size_t bytes) {
  if (::access(path.c_str(), F_OK) == 0) return true;
  const std::string mine = path + "." + std::to_string(::getpid());
  const int fd = ::open(mine.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return false;
  size_t done = 0;
  while (done < bytes) {
    const ssize_t n = ::write(fd, static_cast<const char*>(data) + done, bytes - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  ::close(fd);
  const bool whole = done == bytes && ::rename(mine.c_str(), path.c_str()) == 0;
  if (!whole) ::unlink(mine.c_str());
  return whole;
}

OpenedOutput open_output(const Options& options, const Identity& identity, ShardFile& shard) {
  OpenedOutput opened;
  const int32_t pid = ::getpid();
  std::string path = expand_output(options.output, identity, pid);
  if (path.empty()) return {"PASTA_OUTPUT is empty", {}, 0};
  // The program may change its directory before the shard has to be reopened.
  if (path[0] != '/') {
    if (char* cwd = ::getcwd(nullptr, 0)) {
      path = std::string(cwd) + "/" + path;
      std::free(cwd);
    }
  }
  opened.directory = path;
  opened.error = prepare_directory(options, path);
  if (!opened.error.empty()) return opened;

  int error = EEXIST;
  for (; error == EEXIST && opened.generation < 10000; ++opened.generation) {
    error = shard.create(path + "/shard-" + std::to_string(pid) + "-" + std::to_string(opened.generation) +
                         ".pastashard");
    if (error == 0) break;
  }
  if (error != 0) {
    opened.error = "cannot write into " + path + ": " + std::strerror(error);
    return opened;
  }
  if (!options.registry.empty()) {
    write_new(options.registry + "/" + std::to_string(pid) + "-" + std::to_string(opened.generation), path);
  }
  return opened;
}

}  // namespace pasta
