// The LD_PRELOAD door: sees the end of the process image coming (return from main, exit, _exit, exec) while
// vendor libraries still work, which no destructor does. It does nothing else until a device appears.
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <vector>

#include <dlfcn.h>
#include <unistd.h>

#include "doors/export.h"
#include "schema/types.h"
#include "session/lifetime.h"

namespace {

// The function that ours stands in front of. Looked up by the constructor, since a vfork child must not.
template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

struct Real {
  void (*exit)(int) = next<void(int)>("exit");
  void (*exit_now)(int) = next<void(int)>("_exit");
  void (*quick_exit)(int) = next<void(int)>("quick_exit");
  int (*execve)(const char*, char* const*, char* const*) =
      next<int(const char*, char* const*, char* const*)>("execve");
  int (*execv)(const char*, char* const*) = next<int(const char*, char* const*)>("execv");
  int (*execvp)(const char*, char* const*) = next<int(const char*, char* const*)>("execvp");
  int (*execvpe)(const char*, char* const*, char* const*) =
      next<int(const char*, char* const*, char* const*)>("execvpe");
  int (*fexecve)(int, char* const*, char* const*) = next<int(int, char* const*, char* const*)>("fexecve");
};

const Real& real() {
  static const Real functions;
  return functions;
}

__attribute__((constructor)) void on_load() { real(); }
__attribute__((destructor)) void on_unload() { pasta::finish_last(); }

template <class Exec, class... Arguments>
int exec(Exec* function, Arguments... arguments) {
  pasta::finish("exec", pasta::kNullI32);
  const int result = function(arguments...);
  const int error = errno;
  pasta::resume_after_failed_exec();
  errno = error;
  return result;
}

// The variable arguments of execl and its kin, with the null that ends them.
std::vector<char*> collect(const char* first, va_list list) {
  std::vector<char*> arguments{const_cast<char*>(first)};
  while (arguments.back() != nullptr) arguments.push_back(va_arg(list, char*));
  return arguments;
}

int (*g_main)(int, char**, char**) = nullptr;

int main_then_finish(int argc, char** argv, char** envp) {
  const int status = g_main(argc, argv, envp);
  pasta::finish("exit", status & 0xFF);
  return status;
}

}  // namespace

PASTA_EXPORT int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(),
                                   void (*fini)(), void (*rtld_fini)(), void* stack_end) {
  using Start = int(int (*)(int, char**, char**), int, char**, void (*)(), void (*)(), void (*)(), void*);
  g_main = main;
  return next<Start>("__libc_start_main")(main_then_finish, argc, argv, init, fini, rtld_fini, stack_end);
}

PASTA_EXPORT [[noreturn]] void exit(int status) {
  pasta::finish("exit", status & 0xFF);
  real().exit(status);
  __builtin_unreachable();
}

PASTA_EXPORT [[noreturn]] void _exit(int status) {
  pasta::finish("_exit", status & 0xFF);
  real().exit_now(status);
  __builtin_unreachable();
}

PASTA_EXPORT [[noreturn]] void _Exit(int status) noexcept { _exit(status); }

PASTA_EXPORT [[noreturn]] void quick_exit(int status) noexcept {
  pasta::finish("exit", status & 0xFF);
  real().quick_exit(status);
  __builtin_unreachable();
}

PASTA_EXPORT int execve(const char* path, char* const argv[], char* const envp[]) noexcept {
  return exec(real().execve, path, argv, envp);
}

PASTA_EXPORT int execv(const char* path, char* const argv[]) noexcept { return exec(real().execv, path, argv); }

PASTA_EXPORT int execvp(const char* file, char* const argv[]) noexcept { return exec(real().execvp, file, argv); }

PASTA_EXPORT int execvpe(const char* file, char* const argv[], char* const envp[]) noexcept {
  return exec(real().execvpe, file, argv, envp);
}

PASTA_EXPORT int fexecve(int fd, char* const argv[], char* const envp[]) noexcept {
  return exec(real().fexecve, fd, argv, envp);
}

PASTA_EXPORT int execl(const char* path, const char* first, ...) noexcept {
  va_list list;
  va_start(list, first);
  const std::vector<char*> argv = collect(first, list);
  va_end(list);
  return exec(real().execv, path, argv.data());
}

PASTA_EXPORT int execlp(const char* file, const char* first, ...) noexcept {
  va_list list;
  va_start(list, first);
  const std::vector<char*> argv = collect(first, list);
  va_end(list);
  return exec(real().execvp, file, argv.data());
}

PASTA_EXPORT int execle(const char* path, const char* first, ...) noexcept {
  va_list list;
  va_start(list, first);
  const std::vector<char*> argv = collect(first, list);
  char* const* envp = va_arg(list, char* const*);
  va_end(list);
  return exec(real().execve, path, argv.data(), envp);
}
