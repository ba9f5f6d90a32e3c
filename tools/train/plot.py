"""The training curve of the model card.

python3 plot.py --log models/folio-tiny/training_log.jsonl --out models/folio-tiny/training.png
"""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--log", required=True)
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    lines = [json.loads(line) for line in Path(arguments.log).read_text().splitlines()]
    backbone = [line for line in lines if line["stage"] == "backbone"]
    losses = [line for line in backbone if "loss" in line]
    held_out = [line for line in backbone if "bpb_chat" in line]
    drafts = [line for line in lines if line["stage"] == "drafts"]
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.2), constrained_layout=True)
    left.plot([line["tokens"] / 1e6 for line in losses], [line["loss"] for line in losses], linewidth=0.8)
    left.set(title="Training loss", xlabel="million tokens", ylabel="nats per token", ylim=(0, 5))
    for name in ("stories", "entries", "chat"):
        values = [line[f"bpb_{name}"] for line in held_out]
        middle.plot([line["tokens"] / 1e6 for line in held_out], values, marker=".", label=name)
    known = [line["recall"] for line in held_out]
    middle.plot([line["tokens"] / 1e6 for line in held_out], known, "k:", label="definitions known, share")
    middle.set(title="Held-out text, recall", xlabel="million tokens", ylabel="bits per byte", ylim=(0, 2.4))
    middle.legend(loc="upper right", fontsize="small", ncols=2)
    first = drafts[0]["tokens"]
    right.plot([(line["tokens"] - first) / 1e6 for line in drafts], [1 + line["accepted"] for line in drafts])
    right.set(title="Draft stages", xlabel="million tokens", ylabel="tokens per verify (five drafts)")
    figure.savefig(arguments.out, dpi=80)


if __name__ == "__main__":
    main()
