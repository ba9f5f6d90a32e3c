"""Muon for matrices, Adam for the rest, row-wise lazy Adam for Engram tables."""

import torch

_TABLES = ("table",)
_PLAIN = (
    "embed",
    "head",
    "gate",
    "i_weights",
    "markov_embed",
    "markov_head",
    "confidence",
    "q_weight",
    "k_weight",
    "fn",
)


def _is_matrix(name, p):
    return p.ndim >= 2 and name.rsplit(".", 1)[-1] not in _PLAIN + _TABLES


@torch.compile(disable=not torch.cuda.is_available(), dynamic=False)
def _orthogonal(g):
    """Five Newton-Schulz steps on a batch of matrices [n, r, c], r <= c."""
    x = g.to(torch.bfloat16)
    x = x / (x.float().norm(dim=(1, 2), keepdim=True) + 1e-7).to(torch.bfloat16)
    for _ in range(5):
        a = x @ x.transpose(1, 2)
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return x.float()


class Optimiser:
    """step(scale) multiplies every learning rate by `scale`."""

    def __init__(self, module, groups_of_output=4, matrix_lr=4e-3, adam_lr=2e-3, table_lr=1e-2, decay=0.05):
        self.matrix_lr, self.adam_lr, self.table_lr, self.decay = matrix_lr, adam_lr, table_lr, decay
        named = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
        self.all = [p for _, p in named]
        self.tables = [(p, torch.zeros_like(p), torch.zeros_like(p)) for n, p in named if n.endswith(_TABLES)]
        self.matrices = {}
        for name, p in named:
            if _is_matrix(name, p):
                rows, columns = p.shape[-2:]
                if name.endswith("wo_a"):  # independent groups
                    rows //= groups_of_output
                self.matrices.setdefault((rows, columns), []).append(p)
        self.momentum = {
            shape: torch.zeros(sum(p.numel() for p in ps) // (shape[0] * shape[1]), *shape, device=ps[0].device)
            for shape, ps in self.matrices.items()
        }
        known = {id(p) for ps in self.matrices.values() for p in ps} | {id(p) for p, _, _ in self.tables}
        self.plain = [p for p in self.all if id(p) not in known]
        decayed = [p for p in self.plain if p.ndim >= 2]
        rest = [p for p in self.plain if p.ndim < 2]
        self.adam = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": decay}, {"params": rest, "weight_decay": 0.0}],
            lr=adam_lr,
            betas=(0.9, 0.95),
            eps=1e-10,
            fused=torch.cuda.is_available(),
        )
        self.steps = 0

    def gradients(self):
        """Every gradient, zeros where there was none."""
        for p in self.all:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        return [p.grad for p in self.all]

    @torch.no_grad()
    def step(self, scale):
        self.steps += 1
        self.gradients()
        torch.nn.utils.clip_grad_norm_(self.plain, 1.0)
        for group in self.adam.param_groups:
            group["lr"] = self.adam_lr * scale
        self.adam.step()
        for shape, ps in self.matrices.items():
            self._matrix_step(shape, ps, self.matrix_lr * scale)
        for p, mean, square in self.tables:
            self._table_step(p, mean, square, self.table_lr * scale)
        for p in self.all:
            p.grad = None

    def _matrix_step(self, shape, ps, lr):
        g = torch.cat([p.grad.reshape(-1, *shape) for p in ps])
        momentum = self.momentum[shape]
        momentum.lerp_(g, 0.05)
        g = g.lerp(momentum, 0.95)
        tall = shape[0] > shape[1]
        update = _orthogonal(g.transpose(1, 2).contiguous() if tall else g)
        update = (update.transpose(1, 2) if tall else update) * (0.2 * max(shape) ** 0.5)
        at = 0
        for p in ps:
            count = p.numel() // (shape[0] * shape[1])
            p.mul_(1 - lr * self.decay).sub_(update[at : at + count].reshape(p.shape), alpha=lr)
            at += count

    def _table_step(self, p, mean, square, lr):
        """Only rows that were looked up move."""
        seen = (p.grad != 0).any(1, keepdim=True)
        mean.copy_(torch.where(seen, mean.lerp(p.grad, 0.1), mean))
        square.copy_(torch.where(seen, square.lerp(p.grad.square(), 0.01), square))
        correction = (1 - 0.99**self.steps) ** 0.5 / (1 - 0.9**self.steps)
        p.sub_(torch.where(seen, mean / (square.sqrt() + 1e-12) * (lr * correction), 0))

    def state(self):
        return {
            "momentum": self.momentum,
            "adam": self.adam.state_dict(),
            "steps": self.steps,
            "tables": [(mean, square) for _, mean, square in self.tables],
        }

    def load(self, state):
        self.adam.load_state_dict(state["adam"])
        self.steps = state["steps"]
        for shape, momentum in state["momentum"].items():
            self.momentum[shape].copy_(momentum)
        for (_, mean, square), (old_mean, old_square) in zip(self.tables, state["tables"]):
            mean.copy_(old_mean)
            square.copy_(old_square)
