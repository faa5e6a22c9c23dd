// Marks what a door exports; everything else of the library is hidden.
#pragma once

#define PASTA_EXPORT extern "C" __attribute__((visibility("default")))
