#!/bin/sh
# Builds the native parts into the source tree, for work on pasta without installing it:
#   scripts/build.sh && python -m pytest
# Needs in the current Python: the build requirements of pyproject.toml, cmake and ninja.
set -eu
cd "$(dirname "$0")/.."
build=${PASTA_BUILD_DIR:-build/dev}
cmake -S . -B "$build" -G Ninja \
  -DPython_EXECUTABLE="$(command -v python)" \
  -Dpybind11_DIR="$(python -m pybind11 --cmakedir)" \
  -DPASTA_WERROR=ON "$@"
cmake --build "$build"
cmake --install "$build" --prefix . --component pasta
