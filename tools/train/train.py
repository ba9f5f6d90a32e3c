"""Trains folio-tiny: first the backbone, then the draft stages on the frozen backbone; exports after each.

    torchrun --standalone --nproc-per-node gpu train.py backbone --seconds 480 --out DIR
    python3 train.py drafts --seconds 180 --resume DIR/state.pt --out DIR

The learning rate follows the clock, so that a run ends when it should on any machine. --resume takes state.pt of an
earlier run (with optimiser state) or a checkpoint directory (weights only; with the log beside it, if there is one). Into --out go state.pt, model/ (the published
format) and log.jsonl.
"""

import argparse
import json
import math
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

import network
from batches import Batches, held_out_rows
from config_tiny import tiny_config
from drafts import Drafts
from export import export, load_checkpoint
from network import Backbone
from optimiser import Optimiser
from sinkhorn import Sinkhorn, sinkhorn_plain

PROBES = 32  # rows of a sequence at which the indexer is taught
ANCHORS = 48  # draft blocks of a sequence
BALANCE_RATE = 2e-3


class Trainer:
    def __init__(self, arguments):
        self.a = arguments
        self.cuda = torch.cuda.is_available()
        self.ranks, self.rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
        self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if self.cuda else torch.device("cpu")
        if self.cuda:
            torch.cuda.set_device(self.device)
            torch.set_float32_matmul_precision("high")
        if self.ranks > 1:
            dist.init_process_group("nccl" if self.cuda else "gloo")
        torch.manual_seed(arguments.seed)
        self.tokenizer = Path(arguments.data) / "tokenizer.json"
        self.data, self.config, token_map = tiny_config(self.tokenizer)
        self.backbone = Backbone(self.config, token_map, arguments.dropout).to(self.device)
        self.drafts = Drafts(self.config).to(self.device)
        self.backbone.geometry(arguments.length, self.device)
        self.trained = self.backbone if arguments.stage == "backbone" else self.drafts
        self.optimiser = Optimiser(self.trained, self.config.o_groups)
        self.batches = Batches(arguments.data, arguments.length, self.device, arguments.seed * 1000 + self.rank)
        self.probe_random = torch.Generator().manual_seed(arguments.seed)
        self.log_lines, self.tokens_seen = [], 0
        if arguments.resume:
            self._resume(Path(arguments.resume))

    def _resume(self, path):
        if path.is_dir():
            load_checkpoint(self.backbone, self.drafts, path)
            if (path.parent / "log.jsonl").exists():
                self.log_lines = [json.loads(line) for line in (path.parent / "log.jsonl").read_text().splitlines()]
                seen = [line["tokens"] for line in self.log_lines if line["stage"] == self.a.stage]
                self.tokens_seen = max(seen, default=self.log_lines[-1]["tokens"])
            return
        state = torch.load(path, map_location=self.device)
        self.backbone.load_state_dict(state["backbone"])
        self.drafts.load_state_dict(state["drafts"])
        self.log_lines, self.tokens_seen = state["log"], state["tokens"]
        if state["stage"] == self.a.stage:
            self.optimiser.load(state["optimiser"])

    # -- the clock -----------------------------------------------------------------------------------------------------

    def fraction(self):
        """Share of the time that has passed, the same on every rank."""
        value = torch.tensor((time.time() - self.started) / self.a.seconds, device=self.device)
        if self.ranks > 1:
            dist.broadcast(value, 0)
        return float(value)

    def rate(self, fraction):
        warm = min(1.0, (self.step + 1) / self.a.warmup)
        return self.a.peak * warm * min(1.0, max(0.0, (1 - fraction) / self.a.decay))

    # -- steps ---------------------------------------------------------------------------------------------------------

    def backbone_step(self, tokens, select):
        probes = torch.randperm(self.a.length - 1, generator=self.probe_random)[:PROBES].sort().values.to(self.device)
        loss, index_loss = self.backbone.losses(tokens[:, :-1], tokens[:, 1:], select=select, probes=probes)
        loss = loss.mean()
        (loss + index_loss).backward()
        return {"loss": loss.detach(), "index": index_loss.detach()}

    def draft_step(self, tokens, _):
        last = self.a.length - self.config.dspark_block_size - 1
        anchors = (1 + torch.randperm(last - 1, generator=self.probe_random)[:ANCHORS]).sort().values.to(self.device)
        with torch.no_grad():
            hidden, taps, _ = self.backbone(tokens[:, :-1], select=True)
        loss, certain, match = self.drafts(self.backbone, tokens[:, :-1], hidden, taps, anchors)
        (loss + 0.1 * certain).backward()
        return {"loss": loss.detach(), "confidence": certain.detach(), "accepted": match.cumprod(-1).sum(-1).mean()}

    def reduce(self):
        mixtures = [m for m in self.trained.modules() if hasattr(m, "balance")]
        if self.ranks > 1:
            gradients = self.optimiser.gradients() + [m.load for m in mixtures]
            flat = torch.cat([g.flatten() for g in gradients])
            dist.all_reduce(flat)
            flat /= self.ranks
            at = 0
            for g in gradients:
                g.copy_(flat[at : at + g.numel()].view_as(g))
                at += g.numel()
        for m in mixtures:
            m.balance(BALANCE_RATE * self.rate(self.now))

    def run(self):
        step_function = self.backbone_step if self.a.stage == "backbone" else self.draft_step
        self.trained.train()
        self.frozen_eval()
        self.step, self.now, first = 0, 0.0, None
        self.warm_up()
        self.started = time.time()
        while True:
            fraction = self.now = self.fraction()
            if fraction >= 1 or (self.a.steps and self.step >= self.a.steps):
                break
            values = step_function(self.batches.next(self.a.rows), fraction >= self.a.select_from)
            self.reduce()
            self.optimiser.step(self.rate(fraction))
            self.step += 1
            self.tokens_seen += self.a.rows * self.a.length * self.ranks
            if self.step == 5:
                first = time.time(), self.step
            if self.step % self.a.log_every == 0 or self.step <= 3:
                self.log(values, first)
            if self.a.evaluate_every and self.step % self.a.evaluate_every == 0 and self.a.stage == "backbone":
                self.log(self.held_out(), first)
        if self.a.stage == "backbone" and self.a.evaluate_every:
            self.log(self.held_out(), first)

    def warm_up(self):
        """Compiles what the run will use, so that the clock starts after it."""
        before = time.time()
        tokens = self.batches.next(self.a.rows)
        if self.a.stage == "drafts":
            self.draft_step(tokens, True)
        else:
            for select in (False, True):
                self.backbone_step(tokens, select)
            if self.a.check:
                self.check_pieces(tokens[:, :-1])
        for p in self.trained.parameters():
            p.grad = None
        for m in self.trained.modules():
            if hasattr(m, "balance"):
                m.load.zero_()
        if self.rank == 0:
            print(f"compiled in {time.time() - before:.0f} s", flush=True)

    def check_pieces(self, tokens):
        """The compiled pieces must compute what the plain ones compute, up to rounding."""
        self.backbone.eval()
        fast = self.backbone(tokens, select=True)[0].detach().float()
        network.compile_pieces = False
        with torch.no_grad():
            plain = torch.cat([self.backbone(part, select=True)[0] for part in tokens.split(16)]).float()
        network.compile_pieces = self.cuda
        self.backbone.train()
        difference = float((fast - plain).norm() / plain.norm())
        print(f"compiled and plain pieces differ by {difference:.4f}", flush=True)
        if difference > 0.25:
            raise SystemExit("the compiled pieces are wrong")
        self.check_sinkhorn()

    def check_sinkhorn(self):
        """Its gradient must be that of the iterations as they are written down, also where they have not converged."""
        logits = 6 * torch.randn(4096, self.config.hc_mult, self.config.hc_mult, device=self.device)
        upstream = torch.randn_like(logits)
        gradients = []
        for function, c in ((Sinkhorn.apply, logits), (sinkhorn_plain, logits.double())):
            c = c.requires_grad_()
            result = function(c, self.config.hc_sinkhorn_iters, self.config.hc_eps)
            gradients.append(torch.autograd.grad(result, c, upstream.to(c.dtype))[0].double())
        difference = float((gradients[0] - gradients[1]).norm() / gradients[1].norm())
        print(f"gradient of Sinkhorn differs by {difference:.1e}", flush=True)
        if difference > 1e-4:
            raise SystemExit("the gradient of Sinkhorn is wrong")

    def frozen_eval(self):
        if self.a.stage == "drafts":
            self.backbone.eval()
            self.backbone.requires_grad_(False)

    def log(self, values, first):
        line = {
            "stage": self.a.stage,
            "step": self.step,
            "seconds": round(time.time() - self.started, 1),
            "tokens": self.tokens_seen,
            "rate": round(self.rate(self.now), 4),
            **{k: round(float(v), 4) for k, v in values.items()},
        }
        if first and self.step > first[1]:
            line["speed"] = round(
                (self.step - first[1]) * self.a.rows * self.a.length * self.ranks / (time.time() - first[0])
            )
        self.log_lines.append(line)
        if self.rank == 0:
            print(json.dumps(line), flush=True)
            if self.cuda and self.step <= 3:
                print(f"memory {torch.cuda.max_memory_allocated() / 2 ** 30:.1f} GiB", flush=True)

    def held_out(self):
        """Bits per byte of each held-out domain, and how many definitions are known: the share of those asked for whose
        every token has a probability above one half. With gradients enabled, so that the training kernels are used."""
        self.backbone.eval()
        data, result = Path(self.a.data), {}
        for path in sorted((data / "held_out").glob("*.npz")):
            nll, part = self.row_losses(path)
            result[f"bpb_{path.stem}"] = float(nll.sum()) / math.log(2) / part.bytes
        nll, part = self.row_losses(data / "recall.npz")
        document = torch.bucketize(torch.arange(len(nll), device=self.device) + 1, part.starts, right=True) - 1
        unsure = torch.zeros(len(part.starts), device=self.device)
        unsure.index_add_(0, document, ((nll > math.log(2)) & part.answers[1:]).float())
        result["recall"] = float((unsure == 0).float().mean())
        self.backbone.train(self.a.stage == "backbone")
        return result

    def row_losses(self, path):
        """NLL of each token but the first of a part of the data, in rows of the training length; and the part."""
        rows, part = held_out_rows(path, self.a.length, self.a.rows, self.device)
        nll = []
        for at in range(0, len(rows), self.a.rows):
            batch = rows[at : at + self.a.rows]
            values, _ = self.backbone.losses(batch[:, :-1].clamp(min=0), batch[:, 1:], select=True)
            nll.append(values.detach())
        return torch.cat(nll)[: len(part.tokens) - 1], part

    def save(self):
        out = Path(self.a.out)
        out.mkdir(parents=True, exist_ok=True)
        torch.save(
            {
                "stage": self.a.stage,
                "backbone": self.backbone.state_dict(),
                "drafts": self.drafts.state_dict(),
                "optimiser": self.optimiser.state(),
                "log": self.log_lines,
                "tokens": self.tokens_seen,
            },
            out / "state.pt",
        )
        (out / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in self.log_lines))
        export(out / "model", self.data, self.backbone, self.drafts, self.tokenizer, self.a.largest_shard)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stage", choices=("backbone", "drafts"))
    parser.add_argument("--data", default=".cache/train/data", help="made by build_data.py (default: %(default)s)")
    parser.add_argument("--out", default=".cache/train/run", help="default: %(default)s")
    parser.add_argument("--resume", help="state.pt or a checkpoint directory")
    parser.add_argument("--seconds", type=float, default=480, help="length of training (default: %(default)s)")
    parser.add_argument("--steps", type=int, help="stop after so many steps all the same")
    parser.add_argument("--rows", type=int, default=64, help="sequences of a step and GPU (default: %(default)s)")
    parser.add_argument("--length", type=int, default=1024, help="tokens of a sequence (default: %(default)s)")
    parser.add_argument("--warmup", type=int, default=100, help="steps (default: %(default)s)")
    parser.add_argument(
        "--peak", type=float, default=1.0, help="factor of all learning rates (default: %(default)s)"
    )
    parser.add_argument(
        "--decay",
        type=float,
        default=0.45,
        help="share of the time in which the rate falls to 0 (default: %(default)s)",
    )
    parser.add_argument(
        "--select-from",
        type=float,
        default=0.6,
        help="share of the time after which top-k selection is on (default: %(default)s)",
    )
    parser.add_argument(
        "--dropout", type=float, default=0.1, help="of sublayer outputs and Engram rows (default: %(default)s)"
    )
    parser.add_argument("--check", action="store_true", help="first compare the compiled pieces with the plain ones")
    parser.add_argument("--log-every", type=int, default=50)
    parser.add_argument("--evaluate-every", type=int, default=500, help="steps, 0: never (default: %(default)s)")
    parser.add_argument(
        "--largest-shard", type=int, default=15 << 20, help="bytes of a file of model/ (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1)
    trainer = Trainer(parser.parse_args())
    trainer.run()
    if trainer.rank == 0:
        trainer.save()
    if trainer.ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
