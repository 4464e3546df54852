#!/usr/bin/env bash
# Set-up, build, all tests. GPU tests skip where there is no GPU. Arguments go to ctest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/setup.sh
scripts/build.sh release -DSAGEBENCH_TESTS=ON
ctest --test-dir build/release --output-on-failure --no-tests=error -j2 "$@"
