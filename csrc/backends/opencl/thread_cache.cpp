#include "backends/opencl/thread_cache.h"

#include <pthread.h>

#include "backends/opencl/objects.h"

namespace pasta::opencl {
namespace {

thread_local ThreadCache* t_cache = nullptr;

void end_thread(void* cache) {
  t_cache = nullptr;  // a later call of the thread makes a new one
  delete static_cast<ThreadCache*>(cache);
}

pthread_key_t make_key() {
  pthread_key_t key;
  pthread_key_create(&key, end_thread);
  return key;
}

}  // namespace

ThreadCache& thread_cache() {
  static const pthread_key_t key = make_key();
  if (t_cache == nullptr) {
    t_cache = new ThreadCache;
    pthread_setspecific(key, t_cache);
  }
  return *t_cache;
}

}  // namespace pasta::opencl
