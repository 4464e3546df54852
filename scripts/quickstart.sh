#!/usr/bin/env bash
# Set-up, build, and the smoke scenarios on the GPU if there is one, else on the CPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/setup.sh
scripts/build.sh release -DSAGEBENCH_TESTS=OFF
if command -v nvidia-smi >/dev/null && nvidia-smi --list-gpus 2>/dev/null | grep -q .; then
  echo "quickstart: running on $(nvidia-smi --list-gpus | head -n 1)"
else
  echo "quickstart: no GPU here, running on the CPU: the emulated op stands in for the kernels"
fi
build/release/src/sagebench doctor
mkdir -p out
status=0
build/release/src/sagebench --config configs/smoke.json --out out/quickstart || status=$?
echo "quickstart: exit code $status; the report is out/quickstart/results.md (also .json, .csv)"
exit "$status"
