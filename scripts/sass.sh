#!/usr/bin/env bash
# The machine code of compiled kernels: registers, then SASS, of functions whose (mangled) name
# matches a regular expression. Usage: scripts/sass.sh REGEX [LIBRARY]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[[ $# -ge 1 ]] || { echo "usage: scripts/sass.sh REGEX [LIBRARY]" >&2; exit 2; }
pattern="$1"
library="${2:-build/release/kernels/libsage.a}"
[[ -f "$library" ]] || { echo "sass: $library is missing: run scripts/build.sh first" >&2; exit 2; }
PATH="$PATH:/usr/local/cuda/bin"
command -v cuobjdump >/dev/null || { echo "sass: cuobjdump not found: it comes with the CUDA toolkit" >&2; exit 2; }

registers="$(cuobjdump --dump-resource-usage "$library" 2>/dev/null |
  awk -v p="$pattern" '/^ *Function /{show = $2 ~ p} show && /Function |REG:/')"
[[ -n "$registers" ]] || { echo "sass: no function matches '$pattern'" >&2; exit 1; }
echo "$registers"
cuobjdump --dump-sass "$library" |
  awk -v p="$pattern" '/Function : /{show = $3 ~ p} /^(member|Fatbin) /{show = 0} show'
