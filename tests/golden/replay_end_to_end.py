"""Bounded replay end to end: `folio logits --decoder-tail / --resume` against the oracle's golden.py under the same names.

    replay_end_to_end.py --goldens build/goldens [--quick] [--report FILE.json]     (the program: environment FOLIO)

For a few golden checkpoints, every kind of replay and the fastest backend and the reference:

- the logits lie within 1.5 times the noise floor of the oracle's, as without replay (end_to_end.py). The floor is that of
  a whole prompt; over the fewer rows of a tail one row that a rounding has flipped weighs more, as the square root;
- on the reference, which rounds as the oracle does, they are those of a replay and not of the full prefill;
- chunk sizes, page sizes and stored formats change no bit.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import make_goldens

# Checkpoint of a golden case, its window, tokens of the prompt, quick.
CASES = [("nano-1", 16, 80, True), ("nano-3-image", 16, 80, False), ("slots-1", 32, 150, False)]
VARIANTS = [["--chunk", "7,32", "--kv-cache-dtype", "bf16"], ["--chunk", "1", "--block-size", "16"]]


def replays(window, tokens):
    """Flags of every kind: the tail, a resume one window below the hit, one at the very beginning, and both at once."""
    hit = tokens // window * window - window
    tail, resume = ["--decoder-tail", str(window)], ["--resume", f"{hit}:{hit - window}"]
    return [tail, resume, ["--resume", f"{window}:0"], tail + resume]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--goldens", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="only the case that sanitizer builds use")
    parser.add_argument("--report", type=Path, help="write what was found as JSON")
    args = parser.parse_args()
    make_goldens.require_numpy()
    sys.path.insert(0, str(make_goldens.ORACLE))
    import numpy as np
    import safetensors_io

    known = {case["name"]: case for case in json.loads((args.goldens / "cases.json").read_text())}
    failed, results = False, []
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "out.safetensors"

        def logits_of(command):
            make_goldens.run(command + ["--out", out])
            return np.array(safetensors_io.read(out)[0]["logits"])

        for name, window, count, quick in CASES:
            if args.quick and not quick:
                continue
            folder, case = args.goldens / name, known[name]
            ids = (folder / "tokens.txt").read_text().split()[:count]
            tokens = Path(scratch) / f"{name}.txt"
            tokens.write_text(" ".join(ids) + "\n")
            image = ["--image", "{}:{}".format(*case["image"])] if case["image"] else []
            folio = [os.environ["FOLIO"], "logits", "--model", folder / "checkpoint", "--tokens-file", tokens] + image
            oracle = [sys.executable, make_goldens.ORACLE / "golden.py", "--checkpoint", folder / "checkpoint",
                      "--tokens", ",".join(ids)] + image
            full = logits_of(oracle)
            for flags in replays(window, count):
                want = logits_of(oracle + flags).astype(np.float64)
                for isa in ([], ["--isa", "ref"]):
                    got = logits_of(folio + flags + isa)
                    failures, distance, apart = [], float("nan"), float("nan")
                    limit = 1.5 * case["floor"] * (1 if isa else max(1, case["tokens"] / len(want)) ** 0.5)
                    if got.shape != want.shape:
                        failures.append(f"{got.shape} logits, the oracle has {want.shape}")
                    else:
                        distance = float(np.linalg.norm(got - want) / np.linalg.norm(want))
                        apart = float(np.linalg.norm(full[-len(want):] - want) / np.linalg.norm(want))
                        if not distance <= limit:
                            failures.append(f"relative L2 {distance:.4f} is above {limit:.3f}")
                        if flags[-1].endswith(":0") and apart > 0:
                            failures.append("the oracle's resume at 0 is not its full prefill")
                        if isa and apart > 0 and not distance < apart / 4:
                            failures.append("cannot be told from the full prefill")
                    for variant in [] if isa else VARIANTS:
                        other = logits_of(folio + flags + variant)
                        if not np.array_equal(other.view(np.uint32), got.view(np.uint32)):
                            failures.append(f"{' '.join(variant)} changes bits of the logits")
                    label = f"{name} {' '.join(flags)} {'ref' if isa else 'default'}"
                    equal = int(np.all(got == want, axis=1).sum()) if got.shape == want.shape else 0
                    print(f"{label}: relative L2 {distance:.4f}, limit {limit:.3f}, {equal} of {len(want)} rows equal to "
                          f"the bit; full prefill at {apart:.4f}", flush=True)
                    for failure in failures:
                        failed = True
                        print(f"FAILED {label}: {failure}", flush=True)
                    results.append({"case": name, "flags": flags, "backend": "ref" if isa else "default",
                                    "relative_l2": distance, "limit": limit, "full_prefill": apart,
                                    "equal_rows": equal, "rows": len(want),
                                    "failures": failures})
    if args.report:
        args.report.write_text(json.dumps(results, indent=1) + "\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
