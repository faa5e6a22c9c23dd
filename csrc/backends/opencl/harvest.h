// Reads the device times of commands that have ended, and writes their rows.
#pragma once

#include <cstdint>

#include "backends/opencl/pending.h"

namespace pasta::opencl {

struct Queue;

// Writes the row of a command whose device times are not known: only when the program enqueued it.
void emit_untimed(const CommandRecord& record, int64_t queued_ns);

// Writes what has ended by now; waits for nothing.
void harvest(Queue& queue);

// Writes what ends until `deadline_ns` in any queue; then writes the rest without times, as a loss.
// Gives up early when nothing moves (a command behind a user event that nobody sets).
void harvest_all(int64_t deadline_ns);

}  // namespace pasta::opencl
