# Sourced by ncu.sh, nsys.sh and sanitize.sh, in the repository's root.

fail() {
  echo "$(basename "$0"): $*" >&2
  exit 2
}

# need_program NAME PACKAGE: on PATH, or where the toolkit puts it.
need_program() {
  PATH="$PATH:/usr/local/cuda/bin"
  command -v "$1" > /dev/null || fail "$1 not found: install $2, or see \`sagebench doctor\`"
}

# Sets `sagebench`: the newest executable under build*/, the sanitizer build of host code apart.
find_sagebench() {
  sagebench=$(find build* -type f -name sagebench -perm -u+x -not -path '*asan*' -printf '%T@ %p\n' 2> /dev/null |
    sort -rn | sed -n '1s/^[^ ]* //p') || true
  [[ -n "$sagebench" ]] || fail "no sagebench under build*/: run scripts/quickstart.sh first"
}

# Sets `id`, `config`, `file` (output without suffix) and `sagebench` from ID [CONFIG] [--out DIR].
parse_arguments() {
  local out=results words=()
  while [[ $# -gt 0 ]]; do
    case "$1" in
      --out) [[ $# -ge 2 ]] || fail "--out needs a directory"; out=$2; shift 2 ;;
      -*) fail "unknown option $1" ;;
      *) words+=("$1"); shift ;;
    esac
  done
  [[ ${#words[@]} -ge 1 && ${#words[@]} -le 2 ]] || fail "usage: $(basename "$0") ID [CONFIG] [--out DIR]"
  id=${words[0]}
  config=${words[1]:-}
  find_sagebench
  if [[ -z "$config" ]]; then
    for candidate in configs/*.json; do
      if "$sagebench" --config "$candidate" --only "$id" --list > /dev/null 2>&1; then
        config=$candidate
        break
      fi
    done
    [[ -n "$config" ]] || fail "no file of configs/ has a case '$id'"
  fi
  mkdir -p "$out"
  file=$out/${id//[^A-Za-z0-9.-]/_}
}
