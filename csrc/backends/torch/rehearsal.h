// Runs a test in a child process that may crash, so that the program does not.
#pragma once

namespace pasta::torch {

// True when `test` returned true in a child that has this process's memory. False when it returned
// false, crashed, did not end within two seconds, or no child could be made.
bool rehearse(bool (*test)());

}  // namespace pasta::torch
