#!/usr/bin/env python3
"""Validates every shipped config against the JSON Schema of scenario files."""
import json
import pathlib
import re
import sys

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parent.parent
# A string, or a comment outside of one: scenario files may have comments.
STRING_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)


def load(path):
    return json.loads(STRING_OR_COMMENT.sub(lambda m: m.group(1) or " ", path.read_text()))


def main():
    schema = load(ROOT / "configs/schema/scenario.schema.json")
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    configs = sorted((ROOT / "configs").glob("*.json"))
    errors = [
        f"{path.relative_to(ROOT)}:/{'/'.join(map(str, error.absolute_path))}: {error.message}"
        for path in configs
        for error in validator.iter_errors(load(path))
    ]
    for line in errors:
        print(line, file=sys.stderr)
    print(f"schema: {len(configs)} configs, {len(errors)} errors")
    return 1 if errors or not configs else 0


if __name__ == "__main__":
    sys.exit(main())
