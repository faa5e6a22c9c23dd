// Where activity buffers go: bounded, in order, reused.
#include "check.h"

#if __has_include(<cupti.h>)

#include <chrono>

#include "backends/cupti/buffers.h"

using pasta::cupti::ActivityBuffers;
using pasta::cupti::FilledBuffer;

namespace {

constexpr auto kNow = std::chrono::milliseconds(0);

void test_buffers_come_back_in_order_and_are_reused() {
  ActivityBuffers buffers(ActivityBuffers::kBufferBytes);  // and one more: CUPTI fills one while one is decoded
  uint8_t* const first = buffers.take();
  uint8_t* const second = buffers.take();
  CHECK(first != nullptr && second != nullptr && first != second);
  CHECK(buffers.take() == nullptr && buffers.lent());
  buffers.push({first, 10, nullptr, 0});
  buffers.push({second, 20, nullptr, 0});
  CHECK(!buffers.lent());
  const FilledBuffer popped = buffers.pop(kNow);
  CHECK(popped.data == first && popped.valid_bytes == 10);
  buffers.decoded(popped);
  CHECK(buffers.take() == first);
  CHECK(buffers.pop(kNow).data == second);
}

void test_nothing_to_decode() {
  ActivityBuffers buffers(0);
  const FilledBuffer none = buffers.pop(kNow);
  CHECK(none.data == nullptr);
  buffers.decoded(none);
  uint8_t* const buffer = buffers.take();
  buffers.push({buffer, 1, nullptr, 0});
  buffers.push({});  // "emit what you hold", behind the buffer
  CHECK(buffers.pop(kNow).data == buffer);
  const FilledBuffer end = buffers.pop(kNow);
  CHECK(end.data == nullptr);
  buffers.decoded(end);
  CHECK(!buffers.lent());
  CHECK(buffers.take() == nullptr);  // it gave no buffer back
}

}  // namespace

int main() {
  test_buffers_come_back_in_order_and_are_reused();
  test_nothing_to_decode();
  return g_failures == 0 ? 0 : 1;
}

#else

int main() { return 77; }  // built without CUPTI's headers

#endif
