"""DeepSeek-V4.1 (text) in PyTorch for training: the published rounding points, whole sequences, no caches.

Shapes: B sequences of T tokens, N = B T rows; S residual streams, D hidden, H heads, d head_dim; C compressed entries of a
sequence. Section numbers are those of the model spec. Training differs from inference below one quantisation step: the
outputs of a row's experts are summed in fp32 before they are rounded (7), attention does not round its probabilities but
rounds before it weighs the sink (5.6), fp32 products run in TF32, which holds their bf16 inputs exactly but not the
hyper-connection matrices (4.3), and ties of a selection go anywhere. With `sums.exact` (quantise.py) there are no such
differences.
"""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, create_mask, flex_attention

from config_tiny import Config
from config import engram_primes  # tools/oracle
from engram import hash_multipliers  # tools/oracle
from model import rope_frequencies  # tools/oracle
from quantise import (
    BF16,
    elementary,
    fp32_linear,
    linear,
    mean_square,
    qdq4_16,
    qdq4_32,
    qdq8,
    qlinear,
    rms_norm,
    softmax,
    sums,
    total,
    weight_fp4,
    weight_fp8,
    wide_linear,
)
from sinkhorn import Sinkhorn

torch._dynamo.config.recompile_limit = 64
compile_pieces = torch.cuda.is_available()  # switch off for shapes that are used a few times only


def compiled(function):
    """torch.compile where it pays, else plain."""
    fast = torch.compile(function, dynamic=False)

    def call(*arguments):
        return (fast if compile_pieces else function)(*arguments)

    return call


def parameter(*shape, std=0.0, mean=0.0):
    return nn.Parameter(mean + std * torch.randn(*shape))


def matrix(rows, columns, gain=1.0):
    return parameter(rows, columns, std=gain * columns**-0.5)


# ======================================================================================================================
# the pieces, each one compiled unit
# ======================================================================================================================


@compiled
def mix_inputs(streams, fn, scale, base, eps, hc_eps):
    """streams [N,S,D] -> pre [N,S], post [N,S], logits of comb [N,S,S] (4.3)."""
    s = streams.shape[1]
    z = streams.flatten(1).float()
    m = fp32_linear(z, fn) * elementary(torch.rsqrt, mean_square(z) + eps)
    pre = elementary(torch.sigmoid, m[:, :s] * scale[0] + base[:s]) + hc_eps
    post = 2 * elementary(torch.sigmoid, m[:, s : 2 * s] * scale[1] + base[s : 2 * s])
    return pre, post, (m[:, 2 * s :] * scale[2] + base[2 * s :]).reshape(-1, s, s)


def collapse(streams, mix):
    return total(mix[:, :, None] * streams.float(), 1).to(BF16)


@compiled
def collapse_norm(streams, mix, norm, eps):
    return rms_norm(collapse(streams, mix), norm, eps)


@compiled
def expand(streams, y, post, comb):
    """out[j] = post[j] y + sum_i comb[i][j] X[i] (4.4)."""
    x = streams.float()
    if sums.exact:
        carried = total(comb[:, :, :, None] * x[:, :, None, :], 1)
    else:
        carried = sum(comb[:, i, :, None] * x[:, i, None, :] for i in range(streams.shape[1]))
    return (post[:, :, None] * y.float()[:, None, :] + carried).to(BF16)


def rotate(x, cos, sin):
    """RoPE on the last 2 * cos.shape[-1] elements, adjacent pairs (5.3); cos, sin broadcast over x's leading axes."""
    tail = 2 * cos.shape[-1]
    rest, turned = x[..., :-tail], x[..., -tail:].float()
    a, b = turned[..., 0::2], turned[..., 1::2]
    out = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)
    return torch.cat([rest, out.to(BF16)], dim=-1)


@compiled
def project_queries(x, wq_a, q_norm, wq_b, cos, sin, heads, eps):
    """x [B,T,D] -> rotated q [B,H,T,d], query latent [B,T,rank] (5.1)."""
    qr = rms_norm(qlinear(x, weight_fp8(wq_a)), q_norm, eps)
    q = qlinear(qr, weight_fp8(wq_b)).reshape(*x.shape[:2], heads, -1)
    return rotate(q, cos[:, None], sin[:, None]).transpose(1, 2), qr


@compiled
def project_window(x, wkv, kv_norm, cos, sin, eps):
    """x [B,T,D] -> window latents [B,T,d] on the QDQ8 grid (5.2)."""
    return qdq8(rotate(rms_norm(qlinear(x, weight_fp8(wkv)), kv_norm, eps), cos, sin))


@compiled
def project_output(o, sink, lse, cos, sin, wo_a, wo_b, groups):
    """o [B,H,T,d] softmax-weighted values, lse [B,H,T], or None if the sink is in o -> [B,T,D] (5.6 to 5.9)."""
    if lse is not None:
        o = (o.float() * torch.sigmoid(lse - sink[:, None])[..., None]).to(BF16)
    o = rotate(o.transpose(1, 2), cos[:, None], -sin[:, None])
    b, t = o.shape[:2]
    wa = weight_fp8(wo_a).reshape(groups, -1, wo_a.shape[1])
    o = o.reshape(b, t, groups, -1)
    if sums.exact:
        y = torch.stack([linear(o[:, :, g], wa[g]) for g in range(groups)], 2)
    else:
        y = torch.einsum("btgi,gri->btgr", o, wa)
    return qlinear(y.flatten(2), weight_fp8(wo_b))


@compiled
def compress2(x, wkv, wgate, norm, eps):
    """x [B,T,D] -> un-rotated latents [B,T/2,d], groups of two (6.1)."""
    kv, gate = (wide_linear(x, w).unflatten(1, (-1, 2)) for w in (wkv, wgate))
    return rms_norm(total(kv * softmax(gate, 2), 2).to(BF16), norm, eps)


@compiled
def compress1(x, wkv, norm, eps):
    return rms_norm(linear(x, wkv.to(BF16)), norm, eps)


@compiled
def compressed_rows(latent, cos, sin):
    return qdq4_16(rotate(latent, cos, sin))


@compiled
def index_keys(latent, wk, k_norm, cos, sin, eps):
    return qdq4_32(rotate(rms_norm(linear(latent, wk.to(BF16)), k_norm, eps), cos, sin))


@compiled
def index_queries(x, qr, wq_b, weights_proj, cos, sin, heads, scale):
    """-> index queries [B,R,heads,i] and head weights [B,R,heads] (6.4)."""
    q = qlinear(qr, weight_fp8(wq_b)).reshape(*x.shape[:2], heads, -1)
    weights = (linear(x, weights_proj.to(BF16)).float() * scale).to(BF16)
    return qdq4_32(rotate(q, cos[:, None], sin[:, None])), weights


def index_scores(q, weights, keys):
    """q [B,R,heads,i], keys [B,C,i] -> scores [B,R,C], three roundings (6.5)."""
    b, r, heads, i = q.shape
    q, keys = q.reshape(b, r * heads, i), keys.transpose(1, 2)
    d = torch.bmm(q.double(), keys.double()).float().to(BF16) if sums.exact else torch.bmm(q, keys)
    return total((torch.relu(d.reshape(b, r, heads, -1)) * weights[..., None]).float(), 2).to(BF16)


def highest(scores, k):
    """Indices of the k highest of the last dimension; exact: ties go to the lowest index."""
    if sums.exact:
        return torch.sort(scores, dim=-1, descending=True, stable=True).indices[..., :k]
    return torch.topk(scores, k, dim=-1).indices


@compiled
def routing(x, gate, bias, k, scale):
    """x [N,D] -> weights [N,E], zero where an expert is not selected (7), and selections [N,E]."""
    affinity = elementary(torch.sqrt, elementary(F.softplus, wide_linear(x, gate)))
    chosen = highest(affinity.detach() + bias, k)
    selected = torch.zeros_like(affinity).scatter(1, chosen, 1.0)
    weights = affinity * selected
    if k > 1:
        weights = weights / (total(weights, -1, keepdim=True) + 1e-20)
    return weights * scale, selected


def swiglu(gate, up, limit):
    return elementary(F.silu, gate.float().clamp(max=limit)) * up.float().clamp(-limit, limit)


@compiled
def moe(x, weights, w1, w3, w2, s1, s3, s2, limit):
    """All experts on all rows; a row's unselected experts have weight zero. Experts w1, w3 [E,I,D], w2 [E,D,I]."""
    experts, inner, hidden = w1.shape
    xq = qdq8(x)
    gate, up = (
        linear(xq, weight_fp4(w).reshape(experts * inner, hidden)).unflatten(1, (experts, inner)) for w in (w1, w3)
    )
    v = qdq8((weights[:, :, None] * swiglu(gate, up, limit)).to(BF16))
    if sums.exact:
        routed = sum(linear(v[:, e], weight_fp4(w2[e])).float() for e in range(experts))
    else:
        routed = F.linear(v.flatten(1), weight_fp4(w2).permute(1, 0, 2).reshape(hidden, experts * inner)).float()
    shared = swiglu(linear(xq, weight_fp8(s1)), linear(xq, weight_fp8(s3)), limit).to(BF16)
    return (routed + qlinear(shared, weight_fp8(s2)).float()).to(BF16)


@compiled
def engram_inject(streams, table_rows, wkv, q_weight, k_weight, eps):
    """streams [N,S,D], table_rows [N,columns,width] fp32 masters of the looked-up rows (8.4)."""
    n, s, hidden = streams.shape
    kv = qlinear(qdq8(table_rows).flatten(1), weight_fp8(wkv)).float()
    key, value = kv[:, : s * hidden].reshape(n, s, hidden), kv[:, s * hidden :]
    x = streams.float()
    weight = q_weight.to(BF16).float() * k_weight.to(BF16).float()
    rs = elementary(torch.rsqrt, mean_square(x)[..., 0] + eps) * elementary(torch.rsqrt, mean_square(key)[..., 0] + eps)
    dot = total(x * weight * key, -1) * rs * hidden**-0.5
    gate = elementary(torch.sigmoid, torch.copysign(elementary(torch.sqrt, dot.abs().clamp(min=1e-6)), dot))
    return (x + gate[:, :, None] * value[:, None, :]).to(BF16)


@compiled
def head_logits(hidden, norm, head, eps):
    return wide_linear(rms_norm(hidden, norm, eps), head)


@compiled
def head_loss(hidden, norm, head, targets, eps):
    """hidden [N,D], targets [N] (-1: no loss) -> NLL of each row [N]."""
    logits = wide_linear(rms_norm(hidden, norm, eps), head)
    picked = logits.gather(1, targets.clamp(min=0)[:, None])[:, 0]
    return (torch.logsumexp(logits, dim=-1) - picked) * (targets >= 0)


_flex_compiled = torch.compile(flex_attention, dynamic=False)


def attend(q, kv, mask, sink, window):
    """q [B,H,T,d], kv [B,1,T+C,d] (keys are values) -> (o, lse), where lse is None if the sink is in o. The plain form is
    dense and in fp32 throughout."""
    if sums.exact:
        return attend_exactly(q, kv, mask, sink, window), None
    if compile_pieces:
        return _flex_compiled(q, kv, kv, block_mask=mask, enable_gqa=True, return_lse=True)
    q, kv = q.float(), kv.float()
    allowed = create_mask(mask.mask_mod, len(q), None, q.shape[2], kv.shape[2], device=q.device)
    scores = (q @ kv.transpose(2, 3) * q.shape[-1] ** -0.5).masked_fill(~allowed, -math.inf)
    lse = torch.logsumexp(scores, -1)
    return (torch.exp(scores - lse[..., None]) @ kv).to(BF16), lse


def attend_exactly(q, kv, mask, sink, window):
    """As published (5.6): a query's list has `window` slots for its own rows, oldest first, and then the selected entries;
    probabilities are rounded to bf16 relative to the running maximum after every 64 slots."""
    length, count = q.shape[2], kv.shape[2]
    allowed = create_mask(mask.mask_mod, len(q), None, length, count, device=q.device)
    at, key = torch.arange(length)[:, None], torch.arange(length)
    near = (key - (at - window + 1).clamp(min=0)).expand_as(allowed[..., :length])
    far = window - 1 + allowed[..., length:].cumsum(-1)
    chunk = (torch.cat([near, far], -1) // 64).masked_fill(~allowed, -1)
    values = kv.double()
    scores = (q.double() @ values.transpose(2, 3)).float() * q.shape[-1] ** -0.5
    highest_yet = torch.full_like(scores[..., :1], -1e30)
    weight, o = torch.zeros_like(highest_yet), torch.zeros_like(q, dtype=torch.float32)
    for number in range(int(chunk.max()) + 1):
        part = scores.masked_fill(chunk != number, -math.inf)
        higher = torch.maximum(highest_yet, part.amax(-1, keepdim=True))
        scale, p = elementary(torch.exp, highest_yet - higher), elementary(torch.exp, part - higher)
        weight = weight * scale + total(p, -1, keepdim=True)
        o = o * scale + (p.to(BF16).double() @ values).float()
        highest_yet = higher
    return (o / (weight + elementary(torch.exp, sink[:, None, None] - highest_yet))).to(BF16)


# ======================================================================================================================
# modules: parameters only, under the published names
# ======================================================================================================================


class Mixture(nn.Module):
    def __init__(self, c, layer):
        super().__init__()
        experts, self.k = c.experts_of(layer)
        d, inner = c.hidden_size, c.moe_intermediate_size
        self.gate = matrix(experts, d)
        self.register_buffer("bias", torch.zeros(experts))
        self.register_buffer("load", torch.zeros(experts), persistent=False)
        self.w1, self.w3 = (parameter(experts, inner, d, std=d**-0.5) for _ in range(2))
        self.w2 = parameter(experts, d, inner, std=0.5 * inner**-0.5)
        self.shared_w1, self.shared_w3, self.shared_w2 = matrix(inner, d), matrix(inner, d), matrix(d, inner, 0.5)
        self.scale, self.limit = c.routed_scaling_factor, c.swiglu_limit

    def forward(self, x):
        weights, selected = routing(x, self.gate, self.bias, self.k, self.scale)
        if self.training:
            self.load += selected.sum(0)
        return moe(x, weights, self.w1, self.w3, self.w2, self.shared_w1, self.shared_w3, self.shared_w2, self.limit)

    def balance(self, rate):
        """Moves the selection bias against the load since the last call (noaux_tc)."""
        self.bias += rate * torch.sign(self.load.mean() - self.load)
        self.load.zero_()


class HyperSite(nn.Module):
    """One hyper-connection site: its coefficients and the norm of its sublayer's input."""

    def __init__(self, c):
        super().__init__()
        s = c.hc_mult
        self.fn = parameter((2 + s) * s, s * c.hidden_size, std=(s * c.hidden_size) ** -0.5)
        base = 0.3 * torch.randn((2 + s) * s)
        base[:s] -= math.log(s - 1)  # pre is 1/S on average
        base[2 * s :] += 3.0 * torch.eye(s).flatten()  # comb keeps streams apart
        self.base, self.scale = nn.Parameter(base), nn.Parameter(torch.full((3,), 0.2))
        self.norm = parameter(c.hidden_size, mean=1.0)
        self.eps, self.hc_eps, self.iterations = c.rms_norm_eps, c.hc_eps, c.hc_sinkhorn_iters

    def mixes(self, streams):
        pre, post, logits = mix_inputs(streams, self.fn, self.scale, self.base, self.eps, self.hc_eps)
        return pre, post, Sinkhorn.apply(logits, self.iterations, self.hc_eps)


class Attention(nn.Module):
    def __init__(self, c, layer):
        super().__init__()
        d, hd, heads = c.hidden_size, c.head_dim, c.num_attention_heads
        self.c, self.layer, self.ratio = c, layer, c.ratio(layer)
        self.wq_a, self.wq_b = matrix(c.q_lora_rank, d), matrix(heads * hd, c.q_lora_rank)
        self.wkv = matrix(hd, d)
        self.wo_a = matrix(c.o_groups * c.o_lora_rank, heads * hd // c.o_groups)
        self.wo_b = matrix(d, c.o_groups * c.o_lora_rank, 0.5)
        self.q_norm, self.kv_norm = parameter(c.q_lora_rank, mean=1.0), parameter(hd, mean=1.0)
        self.attn_sink = parameter(heads)
        self.owner, self.source = c.is_kv_source(layer), c.is_index_source(layer)
        if self.owner:
            self.c_wkv, self.c_norm = matrix(hd, d), parameter(hd, mean=1.0)
            if self.ratio > 1:
                self.c_wgate = matrix(hd, d)
            self.i_wk, self.i_k_norm = matrix(c.index_head_dim, hd), parameter(c.index_head_dim, mean=1.0)
        if self.source:
            self.i_wq_b = matrix(c.index_n_heads * c.index_head_dim, c.q_lora_rank)
            self.i_weights = matrix(c.index_n_heads, d)

    def window(self, x, cos, sin):
        return project_window(x, self.wkv, self.kv_norm, cos, sin, self.c.rms_norm_eps)

    def queries(self, x, cos, sin):
        c = self.c
        return project_queries(x, self.wq_a, self.q_norm, self.wq_b, cos, sin, c.num_attention_heads, c.rms_norm_eps)

    def output(self, o, lse, cos, sin):
        return project_output(o, self.attn_sink, lse, cos, sin, self.wo_a, self.wo_b, self.c.o_groups)

    def latents(self, x):
        eps = self.c.rms_norm_eps
        if self.ratio == 1:
            return compress1(x, self.c_wkv, self.c_norm, eps)
        return compress2(x, self.c_wkv, self.c_wgate, self.c_norm, eps)


class Block(nn.Module):
    def __init__(self, c, layer, dropout=0.0):
        super().__init__()
        self.attn, self.ffn = Attention(c, layer), Mixture(c, layer)
        self.hc_attn, self.hc_ffn = HyperSite(c), HyperSite(c)
        self.dropout = dropout

    def forward(self, streams, mix, attention):
        """streams [N,S,D]; `attention` maps the normed input [N,D] to the sublayer's output [N,D] (4.2)."""
        pre, post, comb = self.hc_attn.mixes(streams)
        x = collapse_norm(streams, mix, self.hc_attn.norm, self.hc_attn.eps)
        streams = expand(streams, F.dropout(attention(x), self.dropout, self.training), post, comb)
        next_mix, post, comb = self.hc_ffn.mixes(streams)
        v = collapse_norm(streams, pre, self.hc_ffn.norm, self.hc_ffn.eps)
        return expand(streams, F.dropout(self.ffn(v), self.dropout, self.training), post, comb), next_mix


class Engram(nn.Module):
    """One layer's tables and projections; rows are found by hashing compressed n-grams (8.2, 8.3)."""

    def __init__(self, c, index, multipliers, primes, dropout=0.0):
        super().__init__()
        self.dropout = dropout  # of whole table rows
        columns, width, d, s = (
            (c.engram_max_ngram_size - 1) * c.engram_n_heads,
            c.engram_head_dim,
            c.hidden_size,
            c.hc_mult,
        )
        self.table = parameter(c.engram_num_embeddings[index], width, std=0.5)
        self.wkv = matrix((s + 1) * d, columns * width, 0.5)
        self.q_weight, self.k_weight = parameter(s, d, mean=1.0), parameter(s, d, mean=1.0)
        flat = torch.tensor(primes, dtype=torch.int64).flatten()
        self.register_buffer("multipliers", torch.tensor(multipliers), persistent=False)
        self.register_buffer("primes", flat, persistent=False)
        self.register_buffer("offsets", flat.cumsum(0) - flat, persistent=False)
        self.heads, self.orders, self.eps = c.engram_n_heads, c.engram_max_ngram_size - 1, c.rms_norm_eps

    def rows(self, compressed, pad):
        """compressed [B,T] -> table rows [B*T, columns]."""
        mixed, hashes = compressed * self.multipliers[0], []
        for lag in range(1, self.orders + 1):
            older = F.pad(compressed, (lag, 0), value=pad)[:, : compressed.shape[1]]
            mixed = mixed ^ (older * self.multipliers[lag])
            hashes.append(mixed[..., None].expand(*mixed.shape, self.heads))
        return (torch.cat(hashes, -1) % self.primes + self.offsets).flatten(0, 1)

    def forward(self, streams, rows):
        found = F.dropout1d(F.embedding(rows, self.table), self.dropout, self.training)
        return engram_inject(streams, found, self.wkv, self.q_weight, self.k_weight, self.eps)


class Backbone(nn.Module):
    def __init__(self, c: Config, token_map, dropout=0.0):
        super().__init__()
        self.c = c
        self.embed, self.head = parameter(c.vocab_size, c.hidden_size, std=0.7), matrix(
            c.vocab_size, c.hidden_size, 0.5
        )
        self.norm = parameter(c.hidden_size, mean=1.0)
        self.layers = nn.ModuleList(Block(c, layer, dropout) for layer in range(c.num_hidden_layers))
        multipliers = hash_multipliers(c.engram_layer_ids, c.engram_max_ngram_size, c.engram_compressed_vocab_size)
        primes = engram_primes(c)
        self.engrams = nn.ModuleDict(
            {str(layer): Engram(c, i, multipliers[i], primes[i], dropout) for i, layer in enumerate(c.engram_layer_ids)}
        )
        self.register_buffer("token_map", torch.tensor(token_map, dtype=torch.int64), persistent=False)
        self.pad = int(token_map[c.engram_pad_token_id])
        self.engram_on = True
        self._geometry = {}

    def geometry(self, length, device):
        """RoPE tables and attention masks for sequences of `length` tokens."""
        key = length, device
        if key not in self._geometry:
            self._geometry[key] = Geometry(self.c, length, device)
        return self._geometry[key]

    def forward(self, tokens, select=False, probes=None):
        """tokens [B,T] -> (hidden [N,D] before the final norm, taps [N, layers * D], indexer loss).

        select: index sources choose their top-k; otherwise every visible entry is attended. probes: positions [R] at which
        the indexer is taught to score entries as the attention weighs them; None: no such loss."""
        c, (b, t) = self.c, tokens.shape
        g = self.geometry(t, tokens.device)
        streams = F.embedding(tokens.flatten(), self.embed).to(BF16)[:, None].expand(-1, c.hc_mult, -1).contiguous()
        mix = torch.zeros(b * t, c.hc_mult, device=tokens.device)
        mix[:, 0] = 1
        compressed = self.token_map[tokens]
        run = Run(self, g, b, t, select, probes)
        taps = []
        for layer, block in enumerate(self.layers):
            if self.engram_on and str(layer) in self.engrams:
                engram = self.engrams[str(layer)]
                streams = engram(streams, engram.rows(compressed, self.pad))
            if layer in c.dspark_target_layer_ids:
                taps.append(streams.detach().float().mean(1).to(BF16))
            streams, mix = block(streams, mix, lambda x, block=block: run.attention(block.attn, x))
        return collapse(streams, mix), torch.cat(taps, 1), run.index_loss

    def losses(self, tokens, targets, **options):
        hidden, _, index_loss = self(tokens, **options)
        return head_loss(hidden, self.norm, self.head, targets.flatten(), self.c.rms_norm_eps), index_loss


def rope_table(c, ratio, length):
    """cos and sin [length, rotated / 2] of the fp32 angles (5.3)."""
    angle = (np.arange(length, dtype=np.float32)[:, None] * rope_frequencies(c, ratio)).astype(np.float64)
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


class Geometry:
    """What depends on the sequence length alone."""

    def __init__(self, c, length, device):
        self.c, self.length, self.device = c, length, device
        self.rope = {
            ratio: tuple(torch.from_numpy(table).to(device) for table in rope_table(c, ratio, length))
            for ratio in (0, 1)
        }
        self.entries = {0: 0, 1: length, 2: length // 2}
        self.blocks = {}

    def tables(self, ratio, step=1):
        cos, sin = self.rope[min(ratio, 1)]
        return cos[::step], sin[::step]

    def visible(self, ratio, positions):
        """[R, C]: entry j is visible to position p iff j < (p + 1) // ratio (6.6)."""
        return torch.arange(self.entries[ratio], device=self.device) < ((positions + 1) // ratio)[:, None]

    def mask(self, ratio, selected):
        """Block mask of window and compressed entries; selected [B,T,C] bool or None for all visible ones."""
        length, window = self.length, self.c.sliding_window

        def visible(b, h, q, k):
            near = (k < length) & (k <= q) & (q - k < window)
            if ratio == 0:
                return near
            return near | ((k >= length) & (k - length < (q + 1) // ratio))

        if (ratio, self.length) not in self.blocks:
            made = create_block_mask(visible, None, None, length, length + self.entries[ratio], device=self.device)
            dense = made.to_dense()[0, 0]
            counts = dense.sum(-1, dtype=torch.int32)[None, None]
            order = torch.argsort(dense, dim=-1, descending=True, stable=True).to(torch.int32)[None, None]
            self.blocks[ratio, self.length] = counts, order
        if selected is None:
            rule = visible
        else:

            def rule(b, h, q, k):
                return visible(b, h, q, k) & ((k < length) | selected[b, q, torch.clamp(k - length, min=0)])

        counts, order = self.blocks[ratio, self.length]
        return BlockMask.from_kv_blocks(
            counts, order, BLOCK_SIZE=128, mask_mod=rule, seq_lengths=(length, length + self.entries[ratio])
        )


class Run:
    """What the layers of one forward share: compressed entries, index keys, selections, candidates."""

    def __init__(self, model, geometry, batch, length, select, probes):
        self.c, self.g, self.b, self.t = model.c, geometry, batch, length
        self.select, self.probes = select, probes
        self.entries, self.keys, self.selected, self.candidates = None, None, None, None
        self.masks = {}
        self.index_loss = 0.0

    def attention(self, attn, x):
        ratio = attn.ratio
        x = x.reshape(self.b, self.t, -1)
        cos, sin = self.g.tables(ratio)
        q, qr = attn.queries(x, cos, sin)
        kv = attn.window(x, cos, sin)
        if attn.owner:
            self._compress(attn, x)
        if attn.source:
            self._index(attn, x, qr, q)
        if ratio not in self.masks or attn.source:
            self.masks[ratio] = self.g.mask(ratio, self.selected if ratio and self.select else None)
        if ratio:
            kv = torch.cat([kv, self.entries], dim=1)
        o, lse = attend(q, kv[:, None], self.masks[ratio], attn.attn_sink, self.c.sliding_window)
        return attn.output(o, lse, cos, sin).flatten(0, 1)

    def _compress(self, attn, x):
        latent = attn.latents(x[:, : x.shape[1] // attn.ratio * attn.ratio])
        cos, sin = (table[: latent.shape[1]] for table in self.g.tables(attn.ratio, attn.ratio))
        self.entries = compressed_rows(latent, cos, sin)
        self.keys = index_keys(latent.detach(), attn.i_wk, attn.i_k_norm, cos, sin, self.c.rms_norm_eps)

    def _scores(self, attn, x, qr, positions=None):
        cos, sin = self.g.tables(attn.ratio)
        if positions is not None:
            x, qr, cos, sin = x[:, positions], qr[:, positions], cos[positions], sin[positions]
        q, w = index_queries(
            x.detach(), qr.detach(), attn.i_wq_b, attn.i_weights, cos, sin, self.c.index_n_heads, self.c.index_scale
        )
        return index_scores(q, w, self.keys)

    def _index(self, attn, x, qr, q):
        ratio = attn.ratio
        if self.select:
            with torch.no_grad():
                self.selected = self._choose(attn.layer, self._scores(attn, x, qr), ratio)
        if self.probes is not None:
            visible = self.g.visible(ratio, self.probes)
            with torch.no_grad():
                logits = torch.einsum("bhrd,bcd->bhrc", q[:, :, self.probes].float(), self.entries.float())
                weight = torch.softmax((logits * self.c.head_dim**-0.5).masked_fill(~visible, -1e30), -1).mean(1)
            scores = self._scores(attn, x, qr, self.probes).float().masked_fill(~visible, -1e30)
            self.index_loss = (
                self.index_loss + F.kl_div(torch.log_softmax(scores, -1), weight, reduction="none").sum(-1).mean()
            )

    def _choose(self, layer, scores, ratio):
        """Top-k of the visible entries, inside the candidate pool where there is one (6.7, 6.8). -> bool [B,T,C]."""
        c = self.c
        visible = self.g.visible(ratio, torch.arange(self.t, device=scores.device))
        scores = scores.float().masked_fill(~visible, -math.inf)
        if layer == c.candidate_source_layer_id:
            self.candidates = self._candidate_pool(scores)
        elif c.reads_candidates(layer):
            scores = scores.masked_fill(~self.candidates, -math.inf)
        if scores.shape[-1] <= c.index_topk:
            return (scores > -math.inf).expand_as(scores)
        chosen = highest(scores, c.index_topk)
        return torch.zeros_like(scores, dtype=torch.bool).scatter(2, chosen, True) & (scores > -math.inf)

    def _candidate_pool(self, scores):
        c, size = self.c, self.c.candidate_block_size
        count = scores.shape[-1]
        best = F.pad(scores, (0, -count % size), value=-math.inf).unflatten(-1, (-1, size)).amax(-1)
        if best.shape[-1] <= c.candidate_topk_blocks:
            return torch.ones_like(scores, dtype=torch.bool)
        newest = torch.arange(self.t, device=scores.device) // size  # ratio 1: V - 1 is the position
        best = best.scatter(2, newest[None, :, None].expand(len(best), -1, 1), math.inf)
        kept = highest(best, c.candidate_topk_blocks)
        return torch.zeros_like(best, dtype=torch.bool).scatter(2, kept, True).repeat_interleave(size, -1)[..., :count]
