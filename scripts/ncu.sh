#!/usr/bin/env bash
# Profiles one case with Nsight Compute: scripts/ncu.sh ID [CONFIG] [--out DIR]
# ID is a case, as `sagebench --list` prints it, or case@kernel. Without CONFIG the first file of configs/ that
# lists ID is taken. Leaves DIR/<id>.ncu-rep and, as text, DIR/<id>.txt (DIR: results).
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/profile_common.sh
parse_arguments "$@"
need_program ncu "Nsight Compute"

# The GPU's clocks stay as they are; only the last launch of the whole op is collected. A profiled run compares
# nothing, so that it ends with 4, no verdict.
ncu --clock-control none --check-exit-code no --nvtx --nvtx-include 'sagebench@profile_target/' --set full --import-source yes \
  --force-overwrite -o "$file" "$sagebench" --config "$config" --only "$id" --profile --device cuda || [[ $? -eq 4 ]]
[[ -s "$file.ncu-rep" ]] || fail "ncu left no report: did the range profile_target run?"
ncu --import "$file.ncu-rep" --page details > "$file.txt"
echo "$file.ncu-rep"
echo "$file.txt"
