#!/usr/bin/env bash
# The machine code of compiled kernels: registers, then SASS, of functions whose (mangled) name
# matches a regular expression. Usage: scripts/sass.sh REGEX [LIBRARY]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[[ $# -ge 1 ]] || { echo "usage: scripts/sass.sh REGEX [LIBRARY]" >&2; exit 2; }
pattern="$1"
library="${2:-build/release/kernels/libsage.a}"
[[ -f "$library" ]] || { echo "sass: $library is missing: run scripts/build.sh first" >&2; exit 2; }
cuobjdump="$(command -v cuobjdump || echo /usr/local/cuda/bin/cuobjdump)"

found="$("$cuobjdump" --dump-resource-usage "$library" 2>/dev/null |
  awk -v p="$pattern" '/^ *Function /{show = $2 ~ p; sub(/:.*/, "", $2)} show')"
[[ -n "$found" ]] || { echo "sass: no function matches '$pattern'" >&2; exit 1; }
echo "$found"
"$cuobjdump" --dump-sass "$library" | awk -v p="$pattern" '/Function : /{show = $3 ~ p} show'
