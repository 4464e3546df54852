#!/usr/bin/env bash
# Installs what the build needs and is missing. Debian and Ubuntu: packages. Elsewhere it says what
# has to be there; CMake then downloads the libraries it does not find (pinned, see src/CMakeLists.txt).
# With --dev also what scripts/check.sh needs.
set -euo pipefail

# command or file that shows it is there | Debian package
tools=(
  "g++|g++"
  "cmake|cmake"
  "ninja|ninja-build"
  "git|git"
  "python3|python3"
)
libraries=(
  "/usr/include/CLI/CLI.hpp|libcli11-dev"
  "/usr/include/nlohmann/json.hpp|nlohmann-json3-dev"
  "/usr/include/eigen3/Eigen/Core|libeigen3-dev"
  "/usr/include/gtest/gtest.h|libgtest-dev"
)
if [[ "${1:-}" == --dev ]]; then
  tools+=("clang-format|clang-format")
  libraries+=("/usr/lib/python3/dist-packages/jsonschema/__init__.py|python3-jsonschema")
fi

missing=() missing_tools=()
for row in "${tools[@]}"; do
  command -v "${row%%|*}" >/dev/null || { missing+=("${row##*|}"); missing_tools+=("${row%%|*}"); }
done
for row in "${libraries[@]}"; do
  [[ -e "${row%%|*}" ]] || missing+=("${row##*|}")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

if ! command -v apt-get >/dev/null; then
  if [[ ${#missing_tools[@]} -gt 0 ]]; then
    echo "setup: install these first: ${missing_tools[*]}" >&2
    exit 1
  fi
  echo "setup: no apt-get here; CMake will download the libraries it does not find"
  exit 0
fi

as_root=()
if [[ $EUID -ne 0 ]]; then
  command -v sudo >/dev/null || { echo "setup: as root: apt-get install ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "setup: installing ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -qq --no-install-recommends "${missing[@]}"
