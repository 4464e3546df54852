#!/usr/bin/env bash
# Runs compute-sanitizer on whole configs: scripts/sanitize.sh [CONFIG...] (default: smoke and edge cases).
# memcheck, racecheck and initcheck each; fails on any report of theirs and on any wrong result.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/profile_common.sh
need_program compute-sanitizer "the CUDA toolkit's compute-sanitizer"
find_sagebench
configs=("$@")
[[ ${#configs[@]} -gt 0 ]] || configs=(configs/smoke.json configs/edge_cases.json)

failed=0
for config in "${configs[@]}"; do
  for tool in memcheck racecheck initcheck; do
    echo "== $tool $config"
    compute-sanitizer --tool "$tool" --error-exitcode 99 "$sagebench" --config "$config" --device cuda \
      --validate sampled --no-timing || { echo "FAILED ($?): $tool $config" >&2; failed=1; }
  done
done
exit "$failed"
