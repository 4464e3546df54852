#!/usr/bin/env python3
"""Checks where things may live: dependencies, the order of the stages, sizes. One row per rule.

Usage: placement.py [ROOT]
"""
import pathlib
import re
import sys

HOST, KERNELS, TESTS = "src", "kernels", "tests"
SOURCE_SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".py", ".sh"}

LEFT_OVER = "nothing left for later"  # looked for in comments too

# what a line looks like | folders it is searched in | paths it may be in | why
LINE_RULES = [
    (r'#include <(cuda|nvtx3/|cuda_runtime)', [HOST], r"src/run/", "CUDA and NVTX: src/run only"),
    (r"#include <CLI/", [HOST, KERNELS], r"src/cli\.cpp$", "CLI11: src/cli.cpp only"),
    (r"#include <nlohmann/", [HOST, KERNELS],
     r"src/scenario/|src/report/json\.cpp$|src/inputs/safetensors\.cpp$",
     "nlohmann/json: src/scenario, src/report/json.cpp, src/inputs/safetensors.cpp"),
    (r"#include <Eigen/", [HOST, KERNELS], r"src/ops/[^/]*\.cpp$", "Eigen: src/ops/*.cpp only"),
    (r'#include [<"](?!sage/).*\bsage/', [HOST], r"$^", "the kernels' public header is sage/*.h"),
    (r'#include "(core|scenario|inputs|ops|run|report)/', [KERNELS], r"$^",
     "kernels/ knows nothing of src/"),
    (r"#include .*\.cuh", [HOST], r"src/run/.*\.cu$", ".cuh files are for device code"),
    (r"\basm\b", [KERNELS, HOST], r"kernels/device/|src/run/.*\.cu$", "inline PTX: kernels/device"),
    (r"\b(std::)?(exit|abort|_Exit|quick_exit)\(", [HOST, KERNELS], r"src/main\.cpp$",
     "exit: main only"),
    (r"\bgetenv\(", [HOST, KERNELS], r"src/run/doctor\.cpp$",
     "no environment variables (doctor looks for programs in PATH)"),
    (r"\bassert\(", [HOST, KERNELS], r"$^", "assert never guards anything here"),
    (r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b", [HOST, KERNELS, TESTS, "scripts"], r"$^",
     LEFT_OVER),
]

# Stages of src/, in the order of the data; a header never includes a later one.
STAGES = ["core", "scenario", "inputs", "ops", "faults", "run", "metrics", "properties", "report",
          "verdict", "evaluate", "selftest", "cli", "plan", "results"]

MAX_LINES, MAX_KERNEL_LINES = 400, 600


def sources(root, folders):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SOURCE_SUFFIXES and path.is_file():
                yield path


def stage_of(name):
    """"ops/op.h" and "metrics.h" -> "ops" and "metrics"; None: not a stage of src/."""
    stem = name.split("/")[0] if "/" in name else name.removesuffix(".h")
    return STAGES.index(stem) if stem in STAGES else None


def line_errors(root):
    for pattern, folders, allowed, why in LINE_RULES:
        for path in sources(root, folders):
            name = path.relative_to(root).as_posix()
            if re.search(allowed, name):
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if re.search(pattern, line if why == LEFT_OVER else line.split("//")[0]):
                    yield f"{name}:{number}: {why}"


def order_errors(root):
    for path in sources(root, [HOST]):
        if path.suffix != ".h":
            continue
        inside = path.relative_to(root / HOST).as_posix()
        own = stage_of(inside)
        if own is None:
            yield f"src/{inside}: a stage that scripts/placement.py does not list"
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            include = re.match(r'#include "([^"]+)"', line)
            other = stage_of(include.group(1)) if include else None
            if other is not None and other > own:
                yield f"src/{inside}:{number}: {STAGES[own]} comes before {STAGES[other]}"


def size_errors(root):
    for path in sources(root, [HOST, KERNELS, TESTS, "scripts"]):
        limit = MAX_KERNEL_LINES if path.suffix in {".cu", ".cuh"} else MAX_LINES
        lines = len(path.read_text().splitlines())
        if lines > limit:
            yield f"{path.relative_to(root)}: {lines} lines, {limit} allowed"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__ + "/../..").resolve()
    checked = len(list(sources(root, [HOST, KERNELS, TESTS, "scripts"])))
    errors = [*line_errors(root), *order_errors(root), *size_errors(root)]
    for line in errors:
        print(line, file=sys.stderr)
    print(f"placement: {checked} files, {len(errors)} errors")
    return 1 if errors or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
