#!/usr/bin/env bash
# Traces one case with Nsight Systems: scripts/nsys.sh ID [CONFIG] [--out DIR]
# UNVERIFIED: nsys was not installed where this was written; the command line follows its manual.
# Arguments as for scripts/ncu.sh. Leaves DIR/<id>.nsys-rep (DIR: results).
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/profile_common.sh
parse_arguments "$@"
need_program nsys "Nsight Systems"

# A profiled run compares nothing, so that it ends with 4, no verdict.
nsys profile --trace=cuda,nvtx --capture-range=cudaProfilerApi --capture-range-end=stop --force-overwrite=true \
  -o "$file" "$sagebench" --config "$config" --only "$id" --profile --device cuda || [[ $? -eq 4 ]]
[[ -s "$file.nsys-rep" ]] || fail "nsys left no report"
echo "$file.nsys-rep"
