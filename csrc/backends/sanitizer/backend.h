// The Sanitizer backend as its door sees it; no vendor header.
#pragma once

namespace pasta::sanitizer {

// PASTA_MEMORY asks for the memory pass. CUPTI must then stay out: the two exclude each other.
bool requested();

// From the CUDA door, inside the driver's initialisation. False, with the reason in `loss` and on stderr, when the
// Sanitizer is not to be had; the program runs on.
bool start();

}  // namespace pasta::sanitizer
