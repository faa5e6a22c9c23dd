// A thread of pasta's own in the program's process.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace pasta {

// Starts a thread that nobody joins, with a name of at most 15 characters. The program's signals are the program's: none
// is delivered to it. Returns why there is none, or nothing.
template <class Run>
std::string start_background_thread(const char* name, Run run) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::string error;
  try {
    std::thread([name, run = std::move(run)] {
      pthread_setname_np(pthread_self(), name);
      run();
    }).detach();
  } catch (const std::system_error& caught) {
    error = std::string("cannot start the thread ") + name + ": " + caught.what();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

}  // namespace pasta
