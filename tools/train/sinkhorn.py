"""Sinkhorn normalisation of the hyper-connection's comb (model spec 4.3) with an implicit gradient.

At the fixed point P = diag(u) exp(c) diag(v) the gradient is P * (G - a 1' - 1 b'), where a and b solve the marginal
equations; they are found by as many alternating steps as the forward pass takes. On CUDA both passes are one kernel.
"""

import torch

from quantise import softmax, total

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU-only installation
    triton = None

_BLOCK = 32

if triton is not None:

    @triton.jit
    def _offsets(n, BLOCK: tl.constexpr):
        rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        i = tl.arange(0, 4)
        offsets = rows[:, None, None] * 16 + i[None, :, None] * 4 + i[None, None, :]
        return offsets, offsets < n * 16

    @triton.jit
    def _forward_kernel(c_ptr, p_ptr, n, eps, ITERATIONS: tl.constexpr, BLOCK: tl.constexpr):
        offsets, mask = _offsets(n, BLOCK)
        c = tl.load(c_ptr + offsets, mask=mask, other=0.0)
        c = tl.exp(c - tl.expand_dims(tl.max(c, axis=2), 2))
        c = c / tl.expand_dims(tl.sum(c, axis=2), 2) + eps
        c = c / (tl.expand_dims(tl.sum(c, axis=1), 1) + eps)
        for _ in range(ITERATIONS - 1):
            c = c / (tl.expand_dims(tl.sum(c, axis=2), 2) + eps)
            c = c / (tl.expand_dims(tl.sum(c, axis=1), 1) + eps)
        tl.store(p_ptr + offsets, c, mask=mask)

    @triton.jit
    def _backward_kernel(p_ptr, g_ptr, out_ptr, n, ITERATIONS: tl.constexpr, BLOCK: tl.constexpr):
        offsets, mask = _offsets(n, BLOCK)
        p = tl.load(p_ptr + offsets, mask=mask, other=0.25)
        g = tl.load(g_ptr + offsets, mask=mask, other=0.0)
        weighted = p * g
        row, column = tl.sum(weighted, axis=2), tl.sum(weighted, axis=1)
        a = row * 0.0
        b = column * 0.0
        for _ in range(ITERATIONS):
            b = column - tl.sum(p * tl.expand_dims(a, 2), axis=1)
            a = row - tl.sum(p * tl.expand_dims(b, 1), axis=2)
        tl.store(out_ptr + offsets, p * (g - tl.expand_dims(a, 2) - tl.expand_dims(b, 1)), mask=mask)


def sinkhorn_plain(c, iterations, eps):
    c = softmax(c, 2) + eps
    c = c / (total(c, 1, keepdim=True) + eps)
    for _ in range(iterations - 1):
        c = c / (total(c, 2, keepdim=True) + eps)
        c = c / (total(c, 1, keepdim=True) + eps)
    return c


def gradient_plain(p, g, iterations):
    weighted = p * g
    row, column = weighted.sum(2), weighted.sum(1)
    a, b = torch.zeros_like(row), torch.zeros_like(column)
    for _ in range(iterations):
        b = column - (p * a[:, :, None]).sum(1)
        a = row - (p * b[:, None, :]).sum(2)
    return p * (g - a[:, :, None] - b[:, None, :])


class Sinkhorn(torch.autograd.Function):
    """c [N, S, S] float32 -> comb [N, S, S]."""

    @staticmethod
    def forward(ctx, c, iterations, eps):
        ctx.iterations = iterations
        if _use_kernel(c):
            c, p = c.contiguous(), torch.empty_like(c, memory_format=torch.contiguous_format)
            _forward_kernel[(triton.cdiv(len(c), _BLOCK),)](c, p, len(c), eps, iterations, _BLOCK, num_warps=1)
        else:
            p = sinkhorn_plain(c, iterations, eps)
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx, g):
        (p,) = ctx.saved_tensors
        if _use_kernel(p):
            g, out = g.contiguous(), torch.empty_like(p)
            _backward_kernel[(triton.cdiv(len(p), _BLOCK),)](p, g, out, len(p), ctx.iterations, _BLOCK, num_warps=1)
        else:
            out = gradient_plain(p, g, ctx.iterations)
        return out, None, None


def _use_kernel(c):
    return triton is not None and c.is_cuda and c.shape[1:] == (4, 4)
