#include "device/opencl/compiler_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

extern char** environ;

namespace pasta::memory {
namespace {

constexpr int64_t kLongestNs = 60'000'000'000;
constexpr size_t kMostBytes = size_t{1} << 30;
constexpr size_t kStackBytes = size_t{64} << 10;

// -- Messages: texts, each behind its length ------------------------------------------------------

using Texts = std::vector<std::string>;

std::string pack(const Texts& texts) {
  std::string bytes;
  for (const std::string& text : texts) {
    const uint64_t length = text.size();
    bytes.append(reinterpret_cast<const char*>(&length), sizeof(length));
    bytes += text;
  }
  return bytes;
}

// Empty when the bytes are no message.
Texts unpack(const std::string& bytes) {
  Texts texts;
  for (size_t at = 0; at < bytes.size();) {
    uint64_t length = 0;
    if (bytes.size() - at < sizeof(length)) return {};
    std::memcpy(&length, bytes.data() + at, sizeof(length));
    at += sizeof(length);
    if (length > bytes.size() - at) return {};
    texts.push_back(bytes.substr(at, length));
    at += length;
  }
  return texts;
}

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Waits until the socket can be used; false when the time is over.
bool wait_for(int socket, short what, int64_t end_ns) {
  while (true) {
    const int64_t left_ms = (end_ns - now_ns()) / 1'000'000;
    if (left_ms <= 0) return false;
    pollfd wanted{socket, what, 0};
    const int ready = poll(&wanted, 1, static_cast<int>(left_ms));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

// Both end with the other side's: no signal, whatever has become of it.
bool send_all(int socket, const std::string& bytes, int64_t end_ns) {
  for (size_t sent = 0; sent < bytes.size();) {
    if (!wait_for(socket, POLLOUT, end_ns)) return false;
    const ssize_t count = send(socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno != EINTR && errno != EAGAIN) return false;
    if (count > 0) sent += static_cast<size_t>(count);
  }
  return shutdown(socket, SHUT_WR) == 0;
}

bool receive_all(int socket, std::string* bytes, int64_t end_ns) {
  char part[65536];
  while (bytes->size() < kMostBytes) {
    if (!wait_for(socket, POLLIN, end_ns)) return false;
    const ssize_t count = recv(socket, part, sizeof(part), 0);
    if (count == 0) return true;
    if (count < 0 && errno != EINTR && errno != EAGAIN) return false;
    if (count > 0) bytes->append(part, static_cast<size_t>(count));
  }
  return false;
}

// -- The process ----------------------------------------------------------------------------------

// What the new process needs. It shares our memory until it executes: nothing there may take a lock
// or allocate.
struct Start {
  const char* executable;
  char* const* environment;
  int socket;
  char* stack_end;
  pid_t pid = -1;
};

int execute(void* data) {
  const auto* const start = static_cast<const Start*>(data);
  // The program may have closed its standard files: the socket could be one of their numbers.
  const int socket = fcntl(start->socket, F_DUPFD, 3);
  const int nothing = open("/dev/null", O_WRONLY);
  dup2(socket, 0);
  dup2(nothing, 1);
  dup2(nothing, 2);
#ifdef SYS_close_range
  syscall(SYS_close_range, 3u, ~0u, 0u);
#endif
  char* const arguments[] = {const_cast<char*>(start->executable), nullptr};
  execve(start->executable, arguments, start->environment);
  _exit(127);
}

int start_and_leave(void* data) {
  auto* const start = static_cast<Start*>(data);
  start->pid = clone(execute, start->stack_end, CLONE_VM | CLONE_VFORK | SIGCHLD, data);
  return 0;
}

// By way of a process that ends at once, and without a word (a clone without a signal, that plain
// wait() does not see). Returns the id, or -1.
pid_t start_process(const std::string& executable, int socket) {
  std::vector<char*> environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "LD_PRELOAD=", 11) != 0) environment.push_back(*entry);
  }
  environment.push_back(nullptr);
  std::vector<char> stacks(2 * kStackBytes + 16);
  char* const end = stacks.data() + stacks.size();
  char* const aligned = end - reinterpret_cast<uintptr_t>(end) % 16;
  Start start{executable.c_str(), environment.data(), socket, aligned - kStackBytes, -1};

  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t between = clone(start_and_leave, aligned, CLONE_VM | CLONE_VFORK, &start);
  if (between > 0) {
    while (waitpid(between, nullptr, __WALL) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return between > 0 ? start.pid : -1;
}

// What the compiler has written to standard error, where it ends the process by exit().
int g_socket = -1;

void send_last_words() {
  char text[1024];
  const ssize_t length = pread(2, text, sizeof(text), 0);
  if (length > 0) {
    send_all(g_socket, pack({"found", "", {text, static_cast<size_t>(length)}}),
             now_ns() + kLongestNs);
  }
}

CompileResult failed(std::string why) {
  CompileResult result;
  result.log = std::move(why);
  return result;
}

}  // namespace

CompileResult compile_apart(const std::string& executable, const CompileRequest& request,
                            const std::vector<std::string>& directories) {
  Texts message{request.source, request.options, request.device_extensions,
                std::to_string(request.device_c_version), std::to_string(directories.size())};
  message.insert(message.end(), directories.begin(), directories.end());
  for (const auto& [name, text] : request.headers) message.insert(message.end(), {name, text});

  const int error_before = errno;
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
    return failed("no socket for the OpenCL C compiler");
  const pid_t pid = start_process(executable, sockets[1]);
  close(sockets[1]);
  const int64_t end_ns = now_ns() + kLongestNs;
  std::string answer;
  const bool sent = pid > 0 && send_all(sockets[0], pack(message), end_ns);
  const bool received = sent && receive_all(sockets[0], &answer, end_ns);
  if (pid > 0 && !received && now_ns() >= end_ns) kill(pid, SIGKILL);
  close(sockets[0]);
  errno = error_before;

  const Texts parts = received ? unpack(answer) : Texts{};
  if (parts.size() != 3) {
    return failed(pid > 0 ? "the OpenCL C compiler gave up without a message"
                          : "the OpenCL C compiler could not be started");
  }
  CompileResult result;
  result.has_compiler = parts[0] == "found";
  result.words.resize(parts[1].size() / sizeof(uint32_t));
  std::memcpy(result.words.data(), parts[1].data(), result.words.size() * sizeof(uint32_t));
  result.log = parts[2];
  return result;
}

int serve_compiler(int socket) {
  const int64_t end_ns = now_ns() + kLongestNs;
  std::string bytes;
  if (!receive_all(socket, &bytes, end_ns)) return 1;
  const Texts texts = unpack(bytes);
  if (texts.size() < 5) return 1;
  CompileRequest request;
  request.source = texts[0];
  request.options = texts[1];
  request.device_extensions = texts[2];
  request.device_c_version = static_cast<uint32_t>(std::strtoul(texts[3].c_str(), nullptr, 10));
  const size_t headers = 5 + std::strtoul(texts[4].c_str(), nullptr, 10);
  if (texts.size() < headers) return 1;
  const std::vector<std::string> directories(texts.begin() + 5,
                                             texts.begin() + static_cast<ptrdiff_t>(headers));
  for (size_t i = headers; i + 1 < texts.size(); i += 2)
    request.headers.emplace_back(texts[i], texts[i + 1]);

  g_socket = socket;
  dup2(static_cast<int>(syscall(SYS_memfd_create, "said", 0u)), 2);  // glibc has it since 2.27
  std::atexit(send_last_words);
  std::string why;
  const auto compiler = FrontEnd::find(directories, &why);
  const CompileResult result = compiler != nullptr ? compiler->compile(request) : failed(why);
  const std::string words(reinterpret_cast<const char*>(result.words.data()),
                          result.words.size() * sizeof(uint32_t));
  const bool sent =
      send_all(socket, pack({compiler != nullptr ? "found" : "", words, result.log}), end_ns);
  // Not by exit(): the destructors of these libraries are not to be trusted either.
  _exit(sent ? 0 : 1);
}

}  // namespace pasta::memory
