#!/bin/sh
# Builds the native parts into the source tree, for work on pasta without installing it:
#   scripts/build.sh && python3 -m pytest
# Needs in $PYTHON (python3): the build requirements of pyproject.toml, cmake and ninja.
set -eu
cd "$(dirname "$0")/.."
python=$(command -v "${PYTHON:-python3}")
build=${PASTA_BUILD_DIR:-build/dev}
cmake -S . -B "$build" -G Ninja \
  -DPython_EXECUTABLE="$python" \
  -Dpybind11_DIR="$("$python" -m pybind11 --cmakedir)" \
  -DPASTA_WERROR=ON "$@"
cmake --build "$build"
cmake --install "$build" --prefix . --component pasta
