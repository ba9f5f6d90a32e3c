"""Compares the training network with the oracle and with Folio, teacher-forced.

python3 agreement.py oracle [--preset nano] [--tokens 96]
python3 agreement.py folio --folio build/release/folio --model models/folio-tiny [--data DIR] [--rows 2] [--tokens 840]
python3 agreement.py sample [--data DIR] [--rows 2] [--tokens 840] [--out tests/tiny/sample.json]
python3 agreement.py engram [--model DIR] [--data DIR]

`folio` compares with Folio's reference backend: the network with exact sums, the network as it trains, and Folio's other
backends; the last say how far orders of sums alone lie apart. `sample` writes what the test tiny_agreement reads: rows of
held-out tokens, the mean NLL, the most likely id at each position and checksums of the logits, by the network with exact
sums. `engram` says what the NLL of held-out text becomes without the n-gram memory.
"""

import argparse
import json
import subprocess
import tempfile
import zlib
from pathlib import Path

import numpy as np
import torch

import network  # puts tools/oracle on the path
from checkpoint import load, write_checkpoint  # tools/oracle
from export import load_checkpoint
from model import Model  # tools/oracle
from quantise import sums
from safetensors_io import File  # tools/oracle

BACKENDS = ("scalar", "avx2", "avx512bf16")
BEGINNING = 300  # positions of a row with a checksum of their own; more entries than may be selected


def network_logits(directory, tokens, exact, engram=True):
    """Logits [tokens, vocab] of the network with a checkpoint's weights, with exact sums or with those of training."""
    config, _, token_map = load(str(directory))
    backbone = network.Backbone(config, token_map)
    load_checkpoint(backbone, None, directory)
    backbone.engram_on = engram
    sums.exact = exact
    with torch.no_grad():
        hidden, _, _ = backbone.eval()(torch.from_numpy(tokens)[None], select=True)
        return network.head_logits(hidden, backbone.norm, backbone.head, config.rms_norm_eps).numpy()


def folio_logits(arguments, tokens, isa):
    with tempfile.TemporaryDirectory() as directory:
        ids, out = Path(directory) / "ids.txt", Path(directory) / "logits.safetensors"
        ids.write_text(" ".join(map(str, tokens)))
        command = [arguments.folio, "logits", "--isa", isa, "--model", arguments.model]
        subprocess.run([*command, "--tokens-file", ids, "--out", out], check=True, stdout=subprocess.DEVNULL)
        return np.array(File(str(out)).get("logits"))


def nll(logits, tokens):
    """Of each token but the first."""
    logits = logits[:-1].astype(np.float64)
    highest = logits.max(1)
    return np.log(np.exp(logits - highest[:, None]).sum(1)) + highest - logits[np.arange(len(logits)), tokens[1:]]


def report(name, rows, reference, tokens):
    """Lists of logits and tokens, one entry a row."""
    a, b = np.concatenate(rows), np.concatenate(reference)
    ours, theirs = (np.concatenate([nll(r, t) for r, t in zip(x, tokens)]) for x in (rows, reference))
    print(
        f"{name:<44} NLL {ours.mean():.4f} against {theirs.mean():.4f}, |difference| of a token "
        f"{abs(ours - theirs).mean():.4f}, top-1 {100 * (a.argmax(1) == b.argmax(1)).mean():.2f} %, "
        f"equal logits {100 * (a == b).mean():.2f} %, relative L2 {np.linalg.norm(a - b) / np.linalg.norm(b):.4f}",
        flush=True,
    )


def against_oracle(arguments):
    with tempfile.TemporaryDirectory() as directory:
        write_checkpoint(directory, arguments.preset, 1)
        config, weights, token_map = load(directory)
        tokens = np.random.default_rng(3).integers(3, config.vocab_size - 3, arguments.tokens)
        reference = Model(config, weights, token_map=token_map).forward_whole(tokens)["logits"]
        for exact in (True, False):
            name = f"network, {'exact sums' if exact else 'as it trains'}"
            report(name, [network_logits(directory, tokens, exact)], [reference], [tokens])


def held_out(arguments):
    """(domain, rows of tokens): the first rows of each domain."""
    for path in sorted((Path(arguments.data) / "held_out").glob("*.npz")):
        tokens = np.load(path)["tokens"].astype(np.int64)
        yield path.stem, tokens[: arguments.rows * arguments.tokens].reshape(-1, arguments.tokens)


def against_folio(arguments):
    for domain, rows in held_out(arguments):
        reference = [folio_logits(arguments, row, "ref") for row in rows]
        for exact in (True, False):
            logits = [network_logits(arguments.model, row, exact) for row in rows]
            report(f"{domain}: network, {'exact sums' if exact else 'as it trains'}", logits, reference, rows)
        for isa in BACKENDS:
            logits = [folio_logits(arguments, row, isa) for row in rows]
            report(f"{domain}: Folio, {isa}", logits, reference, rows)


def write_sample(arguments):
    sample = {}
    for domain, rows in held_out(arguments):
        sample[domain] = []
        for row in rows:
            logits = network_logits(arguments.model, row, True)
            row_nll = float(nll(logits, row).mean())
            checksums = {n: zlib.crc32(logits[:n].astype("<f4").tobytes()) for n in (BEGINNING, len(row))}
            sample[domain].append(
                {"tokens": row.tolist(), "nll": row_nll, "most_likely": logits.argmax(1).tolist(), "crc32": checksums}
            )
    lines = [f"{json.dumps(d)}: [\n" + ",\n".join(map(json.dumps, rows)) + "\n]" for d, rows in sample.items()]
    Path(arguments.out).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def without_engram(arguments):
    arguments.rows, arguments.tokens = 4, 1024
    for domain, rows in held_out(arguments):
        losses = [
            np.mean([nll(network_logits(arguments.model, row, False, on), row).mean() for row in rows])
            for on in (True, False)
        ]
        print(f"{domain}: NLL {losses[0]:.3f}, without Engram {losses[1]:.3f}, over {rows.size} tokens", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("oracle", "folio", "sample", "engram"))
    parser.add_argument("--preset", default="nano", help="random checkpoint (default: %(default)s)")
    parser.add_argument("--folio", default="build/release/folio", help="default: %(default)s")
    parser.add_argument("--model", default="models/folio-tiny", help="default: %(default)s")
    parser.add_argument("--data", default=".cache/train/data", help="made by build_data.py (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=2, help="of each domain (default: %(default)s)")
    parser.add_argument("--tokens", type=int, help="of a row (default: 840, for the oracle 96)")
    parser.add_argument("--out", default="tests/tiny/sample.json", help="default: %(default)s")
    arguments = parser.parse_args()
    arguments.tokens = arguments.tokens or (96 if arguments.what == "oracle" else 840)
    steps = {"oracle": against_oracle, "folio": against_folio, "sample": write_sample, "engram": without_engram}
    steps[arguments.what](arguments)


if __name__ == "__main__":
    main()
