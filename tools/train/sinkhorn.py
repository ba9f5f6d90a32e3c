"""Sinkhorn normalisation of the hyper-connection's comb (model spec 4.3). On CUDA each pass is one kernel.

The gradient is that of the iterations as they are taken. The implicit gradient of their fixed point is cheaper, but the
published number of iterations does not reach it where comb is nearly a permutation: there it is many times too large.
To keep nothing but the input, the backward pass takes the iterations again for each one that it goes back.
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
    def _softmax(c):
        c = tl.exp(c - tl.expand_dims(tl.max(c, axis=2), 2))
        return c / tl.expand_dims(tl.sum(c, axis=2), 2)

    @triton.jit
    def _by_columns(c, eps):
        return c / (tl.expand_dims(tl.sum(c, axis=1), 1) + eps)

    @triton.jit
    def _by_rows(c, eps):
        return c / (tl.expand_dims(tl.sum(c, axis=2), 2) + eps)

    @triton.jit
    def _columns_gradient(c, g, eps):
        """Of c / (sums + eps): what `g`, the gradient of the quotients, makes of c's."""
        sums = tl.expand_dims(tl.sum(c, axis=1), 1) + eps
        return (g - tl.expand_dims(tl.sum(g * c / sums, axis=1), 1)) / sums

    @triton.jit
    def _rows_gradient(c, g, eps):
        sums = tl.expand_dims(tl.sum(c, axis=2), 2) + eps
        return (g - tl.expand_dims(tl.sum(g * c / sums, axis=2), 2)) / sums

    @triton.jit
    def _forward_kernel(c_ptr, p_ptr, n, eps, ITERATIONS: tl.constexpr, BLOCK: tl.constexpr):
        offsets, mask = _offsets(n, BLOCK)
        c = _by_columns(_softmax(tl.load(c_ptr + offsets, mask=mask, other=0.0)) + eps, eps)
        for _ in range(ITERATIONS - 1):
            c = _by_columns(_by_rows(c, eps), eps)
        tl.store(p_ptr + offsets, c, mask=mask)

    @triton.jit
    def _backward_kernel(c_ptr, g_ptr, out_ptr, n, eps, ITERATIONS: tl.constexpr, BLOCK: tl.constexpr):
        offsets, mask = _offsets(n, BLOCK)
        soft = _softmax(tl.load(c_ptr + offsets, mask=mask, other=0.0))
        g = tl.load(g_ptr + offsets, mask=mask, other=0.0)
        first = _by_columns(soft + eps, eps)
        for done in range(ITERATIONS - 1):
            before = first
            for _ in range(ITERATIONS - 2 - done):
                before = _by_columns(_by_rows(before, eps), eps)
            g = _columns_gradient(_by_rows(before, eps), g, eps)
            g = _rows_gradient(before, g, eps)
        g = _columns_gradient(soft + eps, g, eps)
        tl.store(out_ptr + offsets, soft * (g - tl.expand_dims(tl.sum(g * soft, axis=2), 2)), mask=mask)


def sinkhorn_plain(c, iterations, eps):
    c = softmax(c, 2) + eps
    c = c / (total(c, 1, keepdim=True) + eps)
    for _ in range(iterations - 1):
        c = c / (total(c, 2, keepdim=True) + eps)
        c = c / (total(c, 1, keepdim=True) + eps)
    return c


class Sinkhorn(torch.autograd.Function):
    """c [N, S, S] float32 -> comb [N, S, S]."""

    @staticmethod
    def forward(ctx, c, iterations, eps):
        ctx.iterations, ctx.eps = iterations, eps
        ctx.save_for_backward(c)
        if not _use_kernel(c):
            return sinkhorn_plain(c, iterations, eps)
        c, p = c.contiguous(), torch.empty_like(c, memory_format=torch.contiguous_format)
        _forward_kernel[(triton.cdiv(len(c), _BLOCK),)](c, p, len(c), eps, iterations, _BLOCK, num_warps=1)
        return p

    @staticmethod
    def backward(ctx, g):
        (c,) = ctx.saved_tensors
        if not _use_kernel(c):
            with torch.enable_grad():
                c = c.detach().requires_grad_()
                return torch.autograd.grad(sinkhorn_plain(c, ctx.iterations, ctx.eps), c, g)[0], None, None
        c, g, out = c.contiguous(), g.contiguous(), torch.empty_like(c, memory_format=torch.contiguous_format)
        _backward_kernel[(triton.cdiv(len(c), _BLOCK),)](
            c, g, out, len(c), ctx.eps, ctx.iterations, _BLOCK, num_warps=1
        )
        return out, None, None


def _use_kernel(c):
    return triton is not None and c.is_cuda and c.shape[1:] == (4, 4)
