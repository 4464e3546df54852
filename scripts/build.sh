#!/usr/bin/env bash
# Configures and builds one preset (default release) in build/PRESET. More arguments are CMake
# settings, as in: scripts/build.sh release -DSAGEBENCH_TESTS=OFF
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset="${1:-release}"
settings=("${@:2}")
if command -v ccache >/dev/null; then
  settings+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
fi
cmake --preset "$preset" "${settings[@]}"
cmake --build --preset "$preset"
