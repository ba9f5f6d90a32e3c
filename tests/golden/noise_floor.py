"""How far two legitimate orders of fp32 sums lie apart, end to end: the yardstick of end_to_end.py. By hand, not a test.

    .venv/bin/python tests/golden/noise_floor.py [--goldens build/goldens] [--drafts N] [CASE ...]

The oracle sums in double and rounds once. Its variant `blocked_qlin` adds the 32-wide blocks of quantised linears in
fp32 in ascending order, as the published kernel does; `fp32_sums` accumulates every reduction in fp32 in numpy's order.
Prints how far the logits of either lie from the oracle's for every golden case. With --drafts N: how far the draft head
of `fp32_sums` lies from the oracle's behind the oracle's own context, for N anchors.
"""

import argparse
import collections
import json
import sys
from pathlib import Path

import make_goldens

make_goldens.require_numpy()
sys.path.insert(0, str(make_goldens.ORACLE))

import checkpoint
import numpy as np
import safetensors_io
from arithmetic import Arithmetic
from model import Model, Trace
from session import Session

VARIANTS = {"blocked_qlin": {"blocked_qlin": True}, "fp32_sums": {"fp32_sums": True}}


def distance(got, want):
    want = want.astype(np.float64)
    return np.linalg.norm(got - want) / np.linalg.norm(want)


def draft_distances(session, models, anchor):
    """Of one draft by two models: the relative L2 of the last streams, of the worst tensor, and the first that differs."""
    traces = []
    for session.model in models:
        trace = Trace()
        session.draft(anchor, trace=trace)
        traces.append(trace.arrays())
    exact, other = traces
    names = ("attn.in", "attn.out", "mid_streams", "ffn.in", "ffn.out", "streams")
    keys = [key for key in exact if key.startswith("mtp.") and key.split(".", 2)[2] in names]
    distances = {key: distance(other[key], exact[key]) for key in keys}
    return distances[keys[-1]], max(distances.values()), next((key for key in keys if distances[key] > 0), "none")


def print_drafts(cases, goldens, count):
    print("| case | anchors | last streams: median, max | worst tensor: median, max | first that differs |\n|---|---|---|---|---|")
    for case, golden, config, weights, token_map, mask in load_cases(cases, goldens):
        models = [Model(config, weights, Arithmetic(**options, index_cache=case["index"]), token_map)
                  for options in ({}, VARIANTS["fp32_sums"])]
        session = Session(models[0])
        session.extend(golden["tokens"].tolist(), mask)
        streams, worst, first = zip(*(draft_distances(session, models, anchor) for anchor in range(3, 3 + count)))
        name, times = collections.Counter(first).most_common(1)[0]
        print(f"| {case['name']} | {count} | {np.median(streams):.4f}, {max(streams):.4f} | {np.median(worst):.4f}, "
              f"{max(worst):.4f} | {name} ({times} times) |", flush=True)


def load_cases(cases, goldens):
    for case in cases:
        folder = goldens / case["name"]
        golden, _ = safetensors_io.read(folder / "golden.safetensors")
        config, weights, token_map = checkpoint.load(folder / "checkpoint")
        mask = golden["image_mask"].astype(bool) if "image_mask" in golden else None
        yield case, golden, config, weights, token_map, mask


def print_logits(cases, goldens):
    print("| case | variant | relative L2 | top-1 agreement |\n|---|---|---|---|")
    for case, golden, config, weights, token_map, mask in load_cases(cases, goldens):
        want = golden["logits"]
        for name, options in VARIANTS.items():
            arithmetic = Arithmetic(**options, index_cache=case["index"])
            logits = Session(Model(config, weights, arithmetic, token_map)).extend(golden["tokens"].tolist(), mask)
            agreement = np.mean(np.argmax(logits, axis=1) == np.argmax(want, axis=1))
            print(f"| {case['name']} | {name} | {distance(logits, want):.3f} | {100 * agreement:.1f} % |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--goldens", type=Path, default=make_goldens.ROOT / "build" / "goldens")
    parser.add_argument("--drafts", type=int, metavar="N", help="compare N drafts instead of logits")
    parser.add_argument("cases", nargs="*", help="names of cases (default: all)")
    args = parser.parse_args()
    cases = [case for case in json.loads((args.goldens / "cases.json").read_text())
             if not args.cases or case["name"] in args.cases]
    if args.drafts:
        print_drafts(cases, args.goldens, args.drafts)
    else:
        print_logits(cases, args.goldens)


if __name__ == "__main__":
    main()
