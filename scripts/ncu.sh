#!/usr/bin/env bash
# Profiles one case with Nsight Compute: scripts/ncu.sh ID [CONFIG] [--out DIR]
# ID is a case, as `sagebench --list` prints it, or case@kernel. Without CONFIG the first file of configs/ that
# lists ID is taken. Leaves DIR/<id>.ncu-rep and, as text, DIR/<id>.txt (DIR: results).
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/profile_common.sh
parse_arguments "$@"
need_program ncu "Nsight Compute"

# The GPU's clocks stay as they are; only the last launch of the whole op is collected.
ncu --clock-control none --nvtx --nvtx-include 'sagebench@profile_target/' --set full --import-source yes \
  --force-overwrite -o "$file" "$sagebench" --config "$config" --only "$id" --profile --device cuda
[[ -s "$file.ncu-rep" ]] || fail "ncu left no report: did the range profile_target run?"
ncu --import "$file.ncu-rep" --page details > "$file.txt"
echo "$file.ncu-rep"
echo "$file.txt"
