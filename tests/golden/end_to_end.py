"""End to end: the logits of `folio logits` against the oracle's, on every instruction set of this processor.

    end_to_end.py --goldens build/goldens [--quick] [--report FILE.json]      (the program: environment variable FOLIO)

For every golden case and backend:

- chunk sizes, one row at a time included, page sizes, thread counts and stored formats change no bit of the logits;
- the logits lie within 1.5 times the noise floor of the oracle's: random weights amplify every rounding that an other
  order of fp32 sums flips, so two correct programs differ by that floor (noise_floor.py, docs/fidelity.md);
- the image span of a case is honoured: without it the logits are others.
"""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import make_goldens

BACKENDS = ["ref", "scalar", "avx2", "avx512bf16"]
# The first is what the others are compared with.
VARIANTS = [
    ["--chunk", "512", "--threads", "2"],
    ["--chunk", "64,3", "--threads", "2", "--kv-cache-dtype", "bf16", "--block-size", "64"],
    ["--chunk", "1", "--threads", "1"],
    ["--chunk", "5,1,1,32,7", "--threads", "3", "--block-size", "16"],
]
# The reference decodes every weight anew for every forward: small chunks take it minutes on the larger presets.
REFERENCE_VARIANTS = {"nano": 4, "slots": 2, "heads": 1, "mini": 1}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--goldens", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="only the cases that sanitizer builds use")
    parser.add_argument("--report", type=Path, help="write what was found as JSON")
    args = parser.parse_args()
    make_goldens.require_numpy()
    sys.path.insert(0, str(make_goldens.ORACLE))
    import numpy as np
    import safetensors_io
    folio = os.environ["FOLIO"]

    def logits(case, backend, variant, image=True):
        """Logits of one run, or None when the processor lacks the instruction set."""
        folder = args.goldens / case["name"]
        with tempfile.TemporaryDirectory() as scratch:
            out = Path(scratch) / "logits.safetensors"
            command = [folio, "logits", "--model", folder / "checkpoint", "--tokens-file", folder / "tokens.txt",
                       "--out", out, "--isa", backend, "--index-cache-dtype", case["index"], *variant]
            if image and case["image"]:
                command += ["--image", "{}:{}".format(*case["image"])]
            done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
            if done.returncode and "this processor" in done.stderr and backend != "ref":
                return None
            if done.returncode:
                sys.exit(f"{' '.join(str(part) for part in command)}\n{done.stdout}{done.stderr}")
            return np.array(safetensors_io.read(out)[0]["logits"])

    def compare(job):
        case, backend = job
        first = logits(case, backend, VARIANTS[0])
        if first is None:
            return {"case": case["name"], "backend": backend, "left_out": True}
        failures = []
        count = REFERENCE_VARIANTS[case["preset"]] if backend == "ref" else len(VARIANTS)
        for variant in VARIANTS[1:count]:
            if not np.array_equal(first.view(np.uint32), logits(case, backend, variant).view(np.uint32)):
                failures.append(f"{' '.join(variant)} changes bits of the logits")
        if case["image"] and np.array_equal(first, logits(case, backend, VARIANTS[0], image=False)):
            failures.append("--image changes nothing")
        golden, _ = safetensors_io.read(args.goldens / case["name"] / "golden.safetensors")
        want = golden["logits"].astype(np.float64)
        distance = float(np.linalg.norm(first - want) / np.linalg.norm(want))
        limit = 1.5 * case["floor"]
        if not distance <= limit:
            failures.append(f"relative L2 {distance:.4f} is above {limit:.3f}, 1.5 times the noise floor")
        rows = np.all(first == golden["logits"], axis=1)
        return {"case": case["name"], "backend": backend, "relative_l2": distance, "limit": limit,
                "top1": float(np.mean(np.argmax(first, axis=1) == np.argmax(want, axis=1))),
                "equal_rows": int(rows.sum()), "rows": len(rows), "failures": failures}

    cases = [case for case in json.loads((args.goldens / "cases.json").read_text()) if case["quick"] or not args.quick]
    jobs = [(case, backend) for case in cases for backend in BACKENDS]
    # The slow reference first, so that no core idles at the end; results stay in the order of `jobs`.
    order = sorted(range(len(jobs)), key=lambda i: (jobs[i][1] != "ref", -jobs[i][0]["tokens"]))
    results = [None] * len(jobs)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for i, result in zip(order, pool.map(compare, (jobs[i] for i in order))):
            results[i] = result
    print("| case | backend | relative L2 | limit | top-1 | rows equal to the bit |\n|---|---|---|---|---|---|")
    failed = False
    for result in results:
        name = f"{result['case']} | {result['backend']}"
        if result.get("left_out"):
            print(f"| {name} | left out: this processor lacks it | | | |")
            continue
        print(f"| {name} | {result['relative_l2']:.4f} | {result['limit']:.3f} | {100 * result['top1']:.1f} % | "
              f"{result['equal_rows']} of {result['rows']} |")
        for failure in result["failures"]:
            failed = True
            print(f"FAILED {result['case']} {result['backend']}: {failure}")
    if args.report:
        args.report.write_text(json.dumps(results, indent=1) + "\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
