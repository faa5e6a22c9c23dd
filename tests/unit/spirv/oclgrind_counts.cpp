// Oclgrind plug-in: prints, at the end of each kernel, the accesses of each buffer as the simulator
// saw them. Lines on stderr:  COUNT <address space> <buffer number> <loads> <load bytes> <stores>
// <store bytes> <atomics>
#include <cstdio>
#include <map>
#include <mutex>

#include "Memory.h"
#include "Plugin.h"

namespace {

struct Counts {
  size_t loads = 0, load_bytes = 0, stores = 0, store_bytes = 0, atomics = 0;
};

class CountPlugin : public oclgrind::Plugin {
 public:
  explicit CountPlugin(const oclgrind::Context* context) : Plugin(context) {}

  void memoryLoad(const oclgrind::Memory* memory, const oclgrind::WorkItem*, size_t address,
                  size_t size) override {
    load(memory, address, size);
  }
  void memoryLoad(const oclgrind::Memory* memory, const oclgrind::WorkGroup*, size_t address,
                  size_t size) override {
    load(memory, address, size);
  }
  void memoryStore(const oclgrind::Memory* memory, const oclgrind::WorkItem*, size_t address,
                   size_t size, const uint8_t*) override {
    store(memory, address, size);
  }
  void memoryStore(const oclgrind::Memory* memory, const oclgrind::WorkGroup*, size_t address,
                   size_t size, const uint8_t*) override {
    store(memory, address, size);
  }
  void memoryAtomicLoad(const oclgrind::Memory* memory, const oclgrind::WorkItem*,
                        oclgrind::AtomicOp, size_t address, size_t) override {
    at(memory, address)->atomics++;
  }
  void kernelEnd(const oclgrind::KernelInvocation*) override {
    for (const auto& [key, c] : counts_) {
      std::fprintf(stderr, "COUNT %u %zu %zu %zu %zu %zu %zu\n", key.first, key.second, c.loads,
                   c.load_bytes, c.stores, c.store_bytes, c.atomics);
    }
    counts_.clear();
  }
  bool isThreadSafe() const override { return false; }

 private:
  Counts* at(const oclgrind::Memory* memory, size_t address) {
    return &counts_[{memory->getAddressSpace(), address >> 48}];
  }
  void load(const oclgrind::Memory* memory, size_t address, size_t size) {
    Counts* counts = at(memory, address);
    counts->loads++;
    counts->load_bytes += size;
  }
  void store(const oclgrind::Memory* memory, size_t address, size_t size) {
    Counts* counts = at(memory, address);
    counts->stores++;
    counts->store_bytes += size;
  }
  std::map<std::pair<unsigned, size_t>, Counts> counts_;
};

CountPlugin* plugin = nullptr;

}  // namespace

extern "C" void initializePlugins(oclgrind::Context* context);
extern "C" void releasePlugins(oclgrind::Context* context);

#include "Context.h"

void initializePlugins(oclgrind::Context* context) {
  context->registerPlugin(plugin = new CountPlugin(context));
}

void releasePlugins(oclgrind::Context* context) {
  context->unregisterPlugin(plugin);
  delete plugin;
}
