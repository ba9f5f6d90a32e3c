"""What bounded replay costs on folio-tiny: the next token behind a prompt, and greedy answers.

    python3 replay_cost.py --folio build/release/folio [--prompts 16]

For prompts of held-out text of several lengths: NLL of the token that really follows, KL divergence of the next-token
distribution from that of the full prefill, the share of prompts with the same most likely token (decoder replay: the last
window; encoder replay: a prefix hit that rebuilds one PAGE), and how many of 48 greedy tokens agree before the first that
differs, with decoder replay against --exact.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import config_tiny  # noqa: F401  puts tools/oracle on the path
from safetensors_io import File  # tools/oracle

LENGTHS = (256, 1024, 4096)
PAGE = 128
ANSWER = 48


class Folio:
    def __init__(self, program, model):
        self.program, self.model = program, model

    def _run(self, *arguments):
        command = [self.program, arguments[0], "--model", self.model, *map(str, arguments[1:])]
        subprocess.run(command, check=True, capture_output=True)

    def next_token(self, prompt, *flags):
        """Log-probabilities [vocab] of the token behind `prompt`."""
        with tempfile.TemporaryDirectory() as directory:
            ids, out = Path(directory) / "ids", Path(directory) / "out.safetensors"
            ids.write_text(" ".join(map(str, prompt)))
            self._run("logits", "--tokens-file", ids, "--out", out, *flags)
            logits = np.array(File(str(out)).get("logits")[-1], dtype=np.float64)
        logits -= logits.max()
        return logits - np.log(np.exp(logits).sum())

    def answers(self, prompts, *flags):
        """ANSWER greedy tokens behind each prompt."""
        with tempfile.TemporaryDirectory() as directory:
            source, target = Path(directory) / "in", Path(directory) / "out"
            lines = [
                {"id": str(i), "tokens": p, "max_tokens": ANSWER, "ignore_eos": True} for i, p in enumerate(prompts)
            ]
            source.write_text("".join(json.dumps(line) + "\n" for line in lines))
            self._run("batch", "--input", source, "--output", target, *flags)
            found = {a["id"]: a["tokens"] for a in map(json.loads, target.read_text().splitlines())}
        return [found[str(i)] for i in range(len(prompts))]


def compare(exact, other, following):
    """-> (NLL exact, NLL other, mean KL, share with the same most likely token)."""
    nll = [float(np.mean([-row[token] for row, token in zip(rows, following)])) for rows in (exact, other)]
    divergence = float(np.mean([(np.exp(a) * (a - b)).sum() for a, b in zip(exact, other)]))
    return *nll, divergence, float(np.mean([a.argmax() == b.argmax() for a, b in zip(exact, other)]))


def agreeing(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), ANSWER)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folio", default="build/release/folio", help="default: %(default)s")
    parser.add_argument("--model", default="models/folio-tiny", help="default: %(default)s")
    parser.add_argument("--data", default=".cache/train/data", help="made by build_data.py (default: %(default)s)")
    parser.add_argument("--prompts", type=int, default=16, help="of each domain and length (default: %(default)s)")
    arguments = parser.parse_args()
    folio = Folio(arguments.folio, arguments.model)
    window = json.loads((Path(arguments.model) / "config.json").read_text())["text_config"]["sliding_window"]
    for domain in ("stories", "chat"):
        tokens = np.load(Path(arguments.data) / "held_out" / f"{domain}.npz")["tokens"].astype(int)
        for length in LENGTHS:
            starts = np.linspace(0, len(tokens) - length - 1, arguments.prompts).astype(int)
            prompts = [tokens[s : s + length].tolist() for s in starts]
            following = [int(tokens[s + length]) for s in starts]
            exact = [folio.next_token(p) for p in prompts]
            decoder = [folio.next_token(p, "--decoder-tail", window) for p in prompts]
            hit = (length - 1) // PAGE * PAGE
            encoder = [folio.next_token(p, "--resume", f"{hit}:{hit - PAGE}") for p in prompts]
            same = np.mean([agreeing(a, b) for a, b in zip(folio.answers(prompts, "--exact"), folio.answers(prompts))])
            for name, rows in (("decoder", decoder), ("encoder", encoder)):
                nll, other, divergence, top = compare(exact, rows, following)
                print(
                    f"{domain} {length} {name}: NLL {nll:.3f} to {other:.3f}, KL {divergence:.4f}, top-1 {100 * top:.0f} %"
                    + (f", {same:.1f} of {ANSWER} answer tokens agree" if name == "decoder" else ""),
                    flush=True,
                )


if __name__ == "__main__":
    main()
