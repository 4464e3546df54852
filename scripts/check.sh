#!/usr/bin/env bash
# Everything a change has to pass: format, placement rules, schema, a build of every preset, tests.
# --fast: what takes seconds (no build).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/setup.sh --dev

echo "check: format"
git ls-files -z '*.h' '*.cpp' '*.cu' '*.cuh' | xargs -0 clang-format --dry-run -Werror

echo "check: placement"
python3 scripts/placement.py

echo "check: schema"
python=python3
"$python" -c 'import jsonschema' 2>/dev/null || python=/usr/bin/python3
"$python" scripts/schema.py

echo "check: shell"
for script in scripts/*.sh .ci/run; do bash -n "$script"; done
[[ "${1:-}" != --fast ]] || { echo "check: fast part passed"; exit 0; }

for preset in release asan; do
  echo "check: $preset"
  scripts/build.sh "$preset" -DSAGEBENCH_TESTS=ON
  ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j2
done
if [[ -x /usr/local/cuda/bin/nvcc ]] || command -v nvcc >/dev/null; then
  echo "check: all architectures"
  scripts/build.sh all-archs -DSAGEBENCH_TESTS=OFF
else
  echo "check: no nvcc here, GPU kernels were not compiled" >&2
  exit 1
fi
echo "check: passed"
