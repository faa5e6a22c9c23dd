// Our functions in front of OpenCL's. Each wrap_SUBJECT.cpp fills the entries of one subject; what
// none fills is recorded as a call and nothing else (generic.cpp).
//
// Every wrapper follows the same order: nothing to do -> straight to the runtime; the runtime's
// call, its result untouched; then what we note about it. No lock is held across a call of the
// runtime.
#pragma once

#include "backends/opencl/dispatch.h"

namespace pasta::opencl {

// All wrappers that the record options ask for; the other entries are null.
Dispatch make_wrappers();

void wrap_generic(Dispatch& table);     // generic.cpp
void wrap_contexts(Dispatch& table);    // contexts, sub-devices
void wrap_queues(Dispatch& table);      // queues, and the profiling that we add to them
void wrap_programs(Dispatch& table);    // programs, kernels
void wrap_builds(Dispatch& table);      // compiling, linking
void wrap_memory(Dispatch& table);      // buffers, images, pipes, SVM allocations
void wrap_launches(Dispatch& table);    // kernel launches
void wrap_copies(Dispatch& table);      // copies of buffers and images
void wrap_transfers(Dispatch& table);   // SVM copies, migrations
void wrap_maps(Dispatch& table);        // map, unmap
void wrap_fills(Dispatch& table);       // fills of buffers, images and SVM
void wrap_waits(Dispatch& table);       // finish, wait, barriers, event times
void wrap_for_memory(Dispatch& table);  // what only --memory needs
void wrap_extensions(Dispatch& table);  // functions that a program asks for by name

}  // namespace pasta::opencl
