// Which records of calls are the program's own, from records built by hand in the order in which CUPTI writes them.
#include "check.h"

#if __has_include(<cupti.h>)

#include <cstring>
#include <string>

#include "backends/cupti/outer_calls.h"

using pasta::cupti::OuterCalls;

namespace {

CUpti_ActivityAPI call(CUpti_ActivityKind kind, uint32_t thread, uint32_t correlation, uint64_t start, uint64_t end) {
  CUpti_ActivityAPI record;
  std::memset(&record, 0, sizeof(record));
  record.kind = kind;
  record.threadId = thread;
  record.correlationId = correlation;
  record.start = start;
  record.end = end;
  return record;
}

CUpti_ActivityAPI driver(uint32_t thread, uint32_t correlation, uint64_t start, uint64_t end) {
  return call(CUPTI_ACTIVITY_KIND_DRIVER, thread, correlation, start, end);
}

CUpti_ActivityAPI runtime(uint32_t thread, uint32_t correlation, uint64_t start, uint64_t end) {
  return call(CUPTI_ACTIVITY_KIND_RUNTIME, thread, correlation, start, end);
}

// What came out: "d7 " and "r7 " for the program's own calls of correlation id 7, "(d7) " for one that another made.
struct Told {
  OuterCalls calls;
  std::string text;

  void add(const CUpti_ActivityAPI& record) {
    calls.add(
        record, [&](const auto& outer) { text += name(outer) + " "; },
        [&](const auto& inner, const auto& outer) {
          CHECK(inner.correlationId == outer.correlationId && inner.threadId == outer.threadId);
          text += "(" + name(inner) + ") ";
        });
  }
  void release() {
    calls.release([&](const auto& outer) { text += name(outer) + " "; });
  }
  static std::string name(const CUpti_ActivityAPI& record) {
    return (record.kind == CUPTI_ACTIVITY_KIND_DRIVER ? "d" : "r") + std::to_string(record.correlationId);
  }
};

void test_a_call_hides_those_within() {
  Told told;
  told.add(driver(1, 7, 110, 190));
  CHECK(told.text.empty());
  told.add(runtime(1, 7, 100, 200));
  CHECK(told.text == "(d7) ");
  // Two of the driver in one of the runtime, as in a copy that waits.
  told.add(driver(1, 8, 310, 320));
  told.add(driver(1, 8, 330, 340));
  told.add(runtime(1, 8, 300, 350));
  CHECK(told.text == "(d7) r7 (d8) (d8) ");
  // The other order; and a call of the runtime in another one of it.
  told.add(driver(1, 8, 345, 350));
  told.add(runtime(1, 8, 290, 360));
  told.release();
  CHECK(told.text == "(d7) r7 (d8) (d8) (d8) (r8) r8 ");
}

void test_calls_of_the_program_stay() {
  Told told;
  told.add(driver(1, 1, 10, 20));
  told.add(driver(1, 2, 30, 40));  // Triton: no runtime at all
  told.add(runtime(1, 3, 50, 60));
  told.add(driver(1, 4, 70, 80));
  CHECK(told.text == "d1 d2 r3 ");
  told.release();
  CHECK(told.text == "d1 d2 r3 d4 ");
  told.release();
  CHECK(told.text == "d1 d2 r3 d4 ");  // once
}

void test_only_what_lies_within_a_call_of_its_thread_and_number() {
  Told told;
  told.add(driver(1, 5, 10, 20));
  told.add(runtime(2, 5, 5, 25));  // another thread
  told.add(runtime(1, 6, 5, 25));  // another number
  CHECK(told.text == "d5 ");
  told.add(driver(1, 9, 40, 50));
  told.add(runtime(1, 9, 60, 70));  // the same number, used again
  CHECK(told.text == "d5 r6 ");
  told.add(driver(1, 10, 80, 90));
  CHECK(told.text == "d5 r6 d9 r9 ");
}

}  // namespace

int main() {
  test_a_call_hides_those_within();
  test_calls_of_the_program_stay();
  test_only_what_lies_within_a_call_of_its_thread_and_number();
  return g_failures == 0 ? 0 : 1;
}

#else

int main() { return 77; }  // built without CUPTI's headers

#endif
