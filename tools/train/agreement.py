"""Compares the training network with the oracle and with Folio, teacher-forced.

python3 agreement.py oracle [--preset nano] [--tokens 96]
python3 agreement.py folio --folio build/release/folio --model models/folio-tiny [--data DIR] [--tokens 1024]
"""

import argparse
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch

import network  # puts tools/oracle on the path
from checkpoint import load, write_checkpoint  # tools/oracle
from export import load_checkpoint
from model import Model  # tools/oracle
from arithmetic import Arithmetic  # tools/oracle
from safetensors_io import File  # tools/oracle


def network_logits(directory, tokens):
    config, _, token_map = load(str(directory))
    backbone = network.Backbone(config, token_map)
    load_checkpoint(backbone, None, directory)
    with torch.no_grad():
        hidden, _, _ = backbone.eval()(torch.from_numpy(tokens)[None], select=True)
        return network.head_logits(hidden, backbone.norm, backbone.head, config.rms_norm_eps).numpy()


def mean_nll(logits, tokens):
    logits = logits[:-1].astype(np.float64)
    highest = logits.max(1)
    total = np.log(np.exp(logits - highest[:, None]).sum(1)) + highest
    return float((total - logits[np.arange(len(logits)), tokens[1:]]).mean())


def report(name, logits, reference, tokens):
    error = np.linalg.norm(logits - reference) / np.linalg.norm(reference)
    same = (logits.argmax(1) == reference.argmax(1)).mean()
    print(
        f"{name}: NLL {mean_nll(logits, tokens):.4f} against {mean_nll(reference, tokens):.4f}, "
        f"top-1 agreement {same:.3f}, relative L2 {error:.3f}",
        flush=True,
    )


def against_oracle(arguments):
    with tempfile.TemporaryDirectory() as directory:
        write_checkpoint(directory, arguments.preset, 1)
        config, weights, token_map = load(directory)
        tokens = np.random.default_rng(3).integers(3, config.vocab_size - 3, arguments.tokens)
        reference = Model(config, weights, token_map=token_map).forward_whole(tokens)["logits"]
        other_sums = Model(config, weights, Arithmetic(fp32_sums=True), token_map).forward_whole(tokens)["logits"]
        report("network", network_logits(directory, tokens), reference, tokens)
        report("oracle with fp32 sums (the noise floor)", other_sums, reference, tokens)


def against_folio(arguments):
    for path in sorted((Path(arguments.data) / "held_out").glob("*.npz")):
        tokens = np.load(path)["tokens"][: arguments.tokens].astype(np.int64)
        with tempfile.TemporaryDirectory() as directory:
            ids, out = Path(directory) / "ids.txt", Path(directory) / "logits.safetensors"
            ids.write_text(" ".join(map(str, tokens)))
            command = [arguments.folio, "logits", "--model", arguments.model, "--tokens-file", ids, "--out", out]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            logits = np.array(File(str(out)).get("logits"))
        report(f"{path.stem}: folio against the network", logits, network_logits(arguments.model, tokens), tokens)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reference", choices=("oracle", "folio"))
    parser.add_argument("--preset", default="nano", help="random checkpoint (default: %(default)s)")
    parser.add_argument("--folio", default="build/release/folio", help="default: %(default)s")
    parser.add_argument("--model", default="models/folio-tiny", help="default: %(default)s")
    parser.add_argument("--data", default=".cache/train/data", help="made by build_data.py (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=96, help="default: %(default)s")
    arguments = parser.parse_args()
    (against_oracle if arguments.reference == "oracle" else against_folio)(arguments)


if __name__ == "__main__":
    main()
