"""The published rounding points as differentiable functions (model spec 0): values on the grid, gradient straight through.

Weights are fp32 masters; results are bf16, in which every value of the FP8 and FP4 grids (scales included) is exact.
Training sums as the hardware likes. With `sums.exact` every sum is taken in double and rounded once, as are exp and
its kin, so that the network can be held bit for bit against others that do the same (agreement.py).
"""

import torch
import torch.nn.functional as F


class Sums:
    """How sums are taken; a switch for comparisons, set before the first forward."""

    exact = False


sums = Sums()
BF16 = torch.bfloat16
_RECIP_448 = 0.0022321429569274187  # float32(1/448)
_RECIP_6 = 0.1666666716337204  # float32(1/6)


def pow2up(t):
    """2^ceil(log2 t) of positive normal float32 values, from their bits (0.2)."""
    u = t.view(torch.int32)
    return (((u >> 23) + ((u & 0x7FFFFF) != 0).to(torch.int32)) << 23).view(torch.float32)


def e4m3(x):
    """Round to the E4M3 grid; x is within +-448."""
    return x.to(torch.float8_e4m3fn).to(torch.float32)


def e2m1(x):
    """Round to the E2M1 grid, ties to the even code; x is within +-6."""
    a = x.abs()
    steps = torch.where(a < 2, torch.round(a * 2) * 0.5, torch.where(a < 4, torch.round(a), torch.round(a * 0.5) * 2))
    return torch.copysign(steps, x)


def straight_through(x, quantised):
    return x + (quantised - x).detach()


def _grouped(x, size):
    return x.reshape(*x.shape[:-1], -1, size)


def qdq8(x):
    """QDQ8 (0.3): groups of 32 of the last dimension, UE8M0 scales. Also the rows of Engram tables (3.6)."""
    g = _grouped(x.float(), 32)
    scale = pow2up(g.detach().abs().amax(-1, keepdim=True).clamp(min=1e-4) * _RECIP_448)
    q = e4m3((g / scale).clamp(-448, 448)) * scale
    return straight_through(g, q).reshape(x.shape).to(BF16)


def qdq4_32(x):
    """QDQ4_32 (0.4): index queries and keys."""
    g = _grouped(x.float(), 32)
    scale = pow2up(g.detach().abs().amax(-1, keepdim=True).clamp(min=6 * 2.0**-126) * _RECIP_6)
    return straight_through(g, e2m1((g / scale).clamp(-6, 6)) * scale).reshape(x.shape).to(BF16)


def qdq4_16(x):
    """QDQ4_16 (0.5): compressed KV, E4M3 scales."""
    g = _grouped(x.float(), 16)
    scale = e4m3((g.detach().abs().amax(-1, keepdim=True).clamp(min=6 * 2.0**-9) / 6).clamp(max=448))
    return straight_through(g, e2m1((g / scale).clamp(-6, 6)) * scale).reshape(x.shape).to(BF16)


def weight_fp8(w):
    """Dense FP8 weight [O, I]: one UE8M0 scale per 32 x 32 tile."""
    rows, columns = w.shape
    tiles = w.reshape(rows // 32, 32, columns // 32, 32)
    scale = pow2up(tiles.detach().abs().amax((1, 3), keepdim=True).clamp(min=1e-4) * _RECIP_448)
    return straight_through(tiles, e4m3((tiles / scale).clamp(-448, 448)) * scale).reshape(w.shape).to(BF16)


def weight_fp4(w):
    """Expert weights [..., O, I]: one UE8M0 scale per row and 32 columns."""
    g = _grouped(w, 32)
    scale = pow2up(g.detach().abs().amax(-1, keepdim=True).clamp(min=2.0**-100) * _RECIP_6)
    return straight_through(g, e2m1((g / scale).clamp(-6, 6)) * scale).reshape(w.shape).to(BF16)


def total(x, dim, keepdim=False):
    """Sum of float32 values."""
    return x.double().sum(dim, keepdim).float() if sums.exact else x.sum(dim, keepdim)


def mean_square(x):
    """Mean of the squares of the last dimension, kept as one."""
    return (x.double() if sums.exact else x).square().mean(-1, keepdim=True).float()


def elementary(function, x):
    """exp, sqrt and their kin of float32 values, rounded once (MKL's single-precision sqrt is not)."""
    return function(x.double()).float() if sums.exact else function(x)


def softmax(x, dim):
    if not sums.exact:
        return torch.softmax(x, dim)
    e = elementary(torch.exp, x - x.amax(dim, keepdim=True))
    return e / total(e, dim, keepdim=True)


def fp32_linear(x, w):
    """float32 [.., I] and [O, I] -> float32."""
    return F.linear(x.double(), w.double()).float() if sums.exact else F.linear(x, w)


def linear(x, w):
    """bf16 [.., I] and [O, I] -> bf16."""
    return fp32_linear(x, w).to(BF16) if sums.exact else F.linear(x, w)


def qlinear(x, w):
    """Quantised linear (0.6); w is on its grid already."""
    return linear(qdq8(x), w)


def wide_linear(x, w):
    """fp32 linear of bf16-stored weights (0.7). TF32 holds bf16 values exactly."""
    return fp32_linear(x.float(), w.to(BF16).float())


def rms_norm(x, w, eps):
    """RMSNorm with one rounding (0.8)."""
    x = x.float()
    return (w.to(BF16).float() * (x * elementary(torch.rsqrt, mean_square(x) + eps))).to(BF16)
