"""Training rows: documents of one part, one after another, from a random document on. All on the device."""

from pathlib import Path

import numpy as np
import torch

# Share of the rows that each part gets.
MIX = {"chat": 0.52, "entries": 0.12, "prose": 0.27, "webster": 0.07, "simple": 0.02}


class Part:
    def __init__(self, path, device):
        with np.load(path) as data:
            self.tokens = torch.from_numpy(data["tokens"].astype(np.int32)).to(device)
            self.starts = torch.from_numpy(data["starts"].astype(np.int64)).to(device)
            self.bytes = int(data["bytes"])
            self.answers = torch.from_numpy(data["answers"]).to(device) if "answers" in data else None


class Batches:
    def __init__(self, directory, length, device, seed, mix=None):
        mix = mix or MIX
        self.length, self.device = length, device
        self.parts = [Part(Path(directory) / "train" / f"{name}.npz", device) for name in mix]
        self.shares = torch.tensor(list(mix.values()))
        self.random = torch.Generator().manual_seed(seed)

    def next(self, rows):
        """-> tokens [rows, length + 1]."""
        picks = torch.multinomial(self.shares, rows, replacement=True, generator=self.random)
        out = []
        for i, part in enumerate(self.parts):
            count = int((picks == i).sum())
            if count:
                documents = torch.randint(len(part.starts), (count,), generator=self.random).to(self.device)
                at = part.starts[documents][:, None] + torch.arange(self.length + 1, device=self.device)
                out.append(part.tokens[at % len(part.tokens)])
        return torch.cat(out).long()


def held_out_rows(path, length, rows, device):
    """Consecutive rows [n, length + 1] of a part, n a multiple of `rows`, padded with -1; and the part."""
    part = Part(path, device)
    count = len(part.tokens) - 1
    out = torch.full((-(-count // length // rows) * rows * length + 1,), -1, dtype=torch.long, device=device)
    out[: count + 1] = part.tokens
    at = torch.arange(0, len(out) - 1, length, device=device)[:, None] + torch.arange(length + 1, device=device)
    return out[at], part
