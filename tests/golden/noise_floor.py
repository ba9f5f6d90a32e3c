"""How far two legitimate orders of fp32 sums lie apart, end to end: the yardstick of end_to_end.py. By hand, not a test.

    .venv/bin/python tests/golden/noise_floor.py [--goldens build/goldens] [CASE ...]

The oracle sums in double and rounds once. Its variant `blocked_qlin` adds the 32-wide blocks of quantised linears in
fp32 in ascending order, as the published kernel does; `fp32_sums` accumulates every reduction in fp32 in numpy's order.
Prints how far the logits of either lie from the oracle's for every golden case.
"""

import argparse
import json
import sys
from pathlib import Path

import make_goldens


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--goldens", type=Path, default=make_goldens.ROOT / "build" / "goldens")
    parser.add_argument("cases", nargs="*", help="names of cases (default: all)")
    args = parser.parse_args()
    make_goldens.require_numpy()
    sys.path.insert(0, str(make_goldens.ORACLE))
    import checkpoint
    import numpy as np
    import safetensors_io
    from arithmetic import Arithmetic
    from model import Model
    from session import Session

    variants = {"blocked_qlin": {"blocked_qlin": True}, "fp32_sums": {"fp32_sums": True}}
    print("| case | variant | relative L2 | top-1 agreement |\n|---|---|---|---|")
    for case in json.loads((args.goldens / "cases.json").read_text()):
        if args.cases and case["name"] not in args.cases:
            continue
        folder = args.goldens / case["name"]
        golden, _ = safetensors_io.read(folder / "golden.safetensors")
        config, weights, token_map = checkpoint.load(folder / "checkpoint")
        mask = golden["image_mask"].astype(bool) if "image_mask" in golden else None
        want = golden["logits"].astype(np.float64)
        for name, options in variants.items():
            arithmetic = Arithmetic(**options, index_cache=case["index"])
            logits = Session(Model(config, weights, arithmetic, token_map)).extend(golden["tokens"].tolist(), mask)
            distance = np.linalg.norm(logits - want) / np.linalg.norm(want)
            agreement = np.mean(np.argmax(logits, axis=1) == np.argmax(want, axis=1))
            print(f"| {case['name']} | {name} | {distance:.3f} | {100 * agreement:.1f} % |", flush=True)


if __name__ == "__main__":
    main()
