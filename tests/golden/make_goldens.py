"""Checkpoints and golden tensors for the golden tests, made when the tests run; what is up to date is kept.

    make_goldens.py --folio build/release/folio --out build/goldens [--quick]

Writes for every case OUT/NAME/checkpoint, OUT/NAME/golden.safetensors (tools/oracle/golden.py with --cut-points) and
OUT/NAME/tokens.txt, and the list of all cases to OUT/cases.json. One folder serves every build of the repository, so
that a sanitizer build does not make them again. --quick: only the cases that sanitizer builds use.
"""

import argparse
import concurrent.futures
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ORACLE = ROOT / "tools" / "oracle"

# writer: who writes the checkpoint; the other side must read it. `tokens` random ids follow `seed`. slots has more
# positions than it may select (256) and than its candidate pool holds (320); heads-1 more than its window (128).
# floor: relative L2 between two orders of fp32 sums, end to end; on heads it grows with the prompt (docs/fidelity.md).
# index: the format of the index plane. quick: sanitizer builds use it.
FIELDS = ("name", "preset", "seed", "writer", "tokens", "image", "floor", "index", "quick")
CASES = [dict(zip(FIELDS, row)) for row in (
    ("nano-1", "nano", 1, "oracle", 96, None, 0.10, "fp4", True),
    ("nano-2", "nano", 2, "folio", 96, None, 0.10, "fp4", False),
    ("nano-3-image", "nano", 3, "oracle", 80, [21, 34], 0.10, "fp4", True),
    ("mini-1", "mini", 1, "oracle", 96, None, 0.10, "fp4", False),
    ("mini-2", "mini", 2, "folio", 64, None, 0.10, "fp4", False),
    ("heads-1", "heads", 1, "folio", 160, None, 0.028, "fp4", False),
    ("heads-1-short", "heads", 1, "oracle", 40, None, 0.02, "fp4", False),
    ("slots-1", "slots", 1, "oracle", 400, None, 0.044, "fp4", False),
    ("nano-1-fp8", "nano", 1, "oracle", 96, None, 0.10, "fp8", True),
    ("slots-1-fp8", "slots", 1, "oracle", 400, None, 0.044, "fp8", False),
)]


def require_numpy():
    """Goes on in .venv when this Python has no numpy; fails with the remedy when there is none."""
    try:
        import numpy  # noqa: F401
    except ImportError:
        python = ROOT / ".venv" / "bin" / "python"
        if python.exists() and Path(sys.prefix) != ROOT / ".venv":
            os.execv(python, [str(python), *sys.argv])
        sys.exit("the golden tests need numpy for tools/oracle, and this Python has none: run scripts/setup dev")


def run(command):
    # One thread each: the cases run side by side.
    environment = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run([str(part) for part in command], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(str(part) for part in command)}\nfailed with status {done.returncode}:\n{done.stdout}")


def digest(folder, pattern="*"):
    total = hashlib.sha256()
    for path in sorted(folder.glob(pattern)):
        if path.is_file():
            total.update(path.name.encode())
            total.update(path.read_bytes())
    return total.hexdigest()


def write_tokens(case, folder):
    sys.path.insert(0, str(ORACLE))
    import safetensors_io
    tensors, _ = safetensors_io.read(folder / "golden.safetensors")
    (folder / "tokens.txt").write_text(" ".join(str(t) for t in tensors["tokens"].tolist()) + "\n")


def make(case, out, folio, oracle_digest):
    """Brings one case up to date; says whether there was something to do."""
    folder = out / case["name"]
    checkpoint, stamp_file = folder / "checkpoint", folder / "stamp.json"
    folder.mkdir(parents=True, exist_ok=True)
    stamp = {"case": {key: value for key, value in case.items() if key != "floor"}, "oracle": oracle_digest}
    if case["writer"] == "folio":
        fresh = folder / "checkpoint.new"
        shutil.rmtree(fresh, ignore_errors=True)
        run([folio, "make-checkpoint", "--preset", case["preset"], "--seed", case["seed"], "--out", fresh])
        stamp["checkpoint"] = digest(fresh)
    if stamp_file.exists() and json.loads(stamp_file.read_text()) == stamp:
        shutil.rmtree(folder / "checkpoint.new", ignore_errors=True)
        return False
    stamp_file.unlink(missing_ok=True)
    shutil.rmtree(checkpoint, ignore_errors=True)
    command = [sys.executable, ORACLE / "golden.py", "--checkpoint", checkpoint, "--random", case["tokens"],
               "--token-seed", case["seed"], "--cut-points", "--index-cache-dtype", case["index"],
               "--out", folder / "golden.safetensors"]
    if case["writer"] == "folio":
        (folder / "checkpoint.new").rename(checkpoint)
    else:
        command += ["--preset", case["preset"], "--seed", case["seed"]]
    if case["image"]:
        command += ["--image", "{}:{}".format(*case["image"])]
    run(command)
    write_tokens(case, folder)
    stamp_file.write_text(json.dumps(stamp))
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folio", required=True, type=Path, help="the program, which writes some of the checkpoints")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--quick", action="store_true", help="only the cases that sanitizer builds use")
    args = parser.parse_args()
    require_numpy()
    args.out.mkdir(parents=True, exist_ok=True)
    with open(args.out / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # builds may run their tests at the same time
        cases = [case for case in CASES if case["quick"] or not args.quick]
        oracle_digest = digest(ORACLE, "*.py")
        # The dear ones first, so that no core idles at the end.
        cases.sort(key=lambda case: ("nano", "slots", "heads", "mini").index(case["preset"]), reverse=True)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            made = list(pool.map(lambda case: make(case, args.out, args.folio, oracle_digest), cases))
        (args.out / "cases.json").write_text(json.dumps(CASES, indent=1) + "\n")
    print(f"{args.out}: {len(cases)} cases, {sum(made)} made, {len(cases) - sum(made)} up to date")


if __name__ == "__main__":
    main()
