"""DSpark: three draft stages trained on the frozen backbone (model spec 9)."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from network import Block, collapse, compiled, head_logits, matrix, parameter
from quantise import BF16, qlinear, rms_norm, weight_fp8, wide_linear


@compiled
def context_input(taps, main_proj, main_norm, eps):
    return rms_norm(qlinear(taps, weight_fp8(main_proj)), main_norm, eps)


@compiled
def attend_block(q, context, own, seen):
    """q [B,H,A,R,d]; context [B,A,W,d] and the mask seen [A,W]; own [B,A,R,d]. -> o [B,H,A,R,d], lse."""
    keys = torch.cat([context, own], dim=2)
    mask = F.pad(seen, (0, own.shape[2]), value=True)
    scores = torch.einsum("bhard,bakd->bhark", q.float(), keys.float()) * q.shape[-1] ** -0.5
    scores = scores.masked_fill(~mask[:, None], -1e30)
    lse = torch.logsumexp(scores, -1)
    return torch.einsum("bhark,bakd->bhard", torch.exp(scores - lse[..., None]), keys.float()).to(BF16), lse


@compiled
def draft_losses(base, markov, markov_head, hidden, confidence, teacher):
    """Rows [n, V]: -> cross entropy with the teacher's distribution, logit of confidence, draft = teacher's choice."""
    logits = base + wide_linear(markov, markov_head)
    teacher_p = torch.softmax(teacher, -1)
    loss = -(teacher_p * torch.log_softmax(logits, -1)).sum(-1)
    joined = torch.cat([hidden.float(), markov.float()], -1)
    sure = wide_linear(joined.to(BF16), confidence)[:, 0]
    return loss, sure, (logits.argmax(-1) == teacher.argmax(-1)).float()


class Drafts(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        d, rank = c.hidden_size, c.dspark_markov_rank
        self.stages = nn.ModuleList(Block(c, c.num_hidden_layers + i) for i in range(c.num_nextn_predict_layers))
        self.main_proj = matrix(d, len(c.dspark_target_layer_ids) * d)
        self.main_norm, self.norm = parameter(d, mean=1.0), parameter(d, mean=1.0)
        self.markov_embed = parameter(c.vocab_size, rank, std=0.5)
        self.markov_head = parameter(c.vocab_size, rank, std=0.1 * rank**-0.5)
        self.confidence = parameter(1, d + rank, std=0.01)

    def forward(self, backbone, tokens, hidden, taps, anchors):
        """tokens [B,T]; hidden [N,D] and taps [N,..] of the backbone, constants; anchors [A]: last committed positions P.
        -> (loss, confidence loss, matches [B,A,rows])."""
        c, (b, t), rows = self.c, tokens.shape, self.c.dspark_block_size
        a, width, device = len(anchors), c.sliding_window, tokens.device
        cos, sin = backbone.geometry(t, device).tables(0)
        main = context_input(taps, self.main_proj, self.main_norm, c.rms_norm_eps).reshape(b, t, -1)
        at = (anchors[:, None] + 1 + torch.arange(rows, device=device)).flatten()
        window = anchors[:, None] - width + 1 + torch.arange(width, device=device)
        ids = torch.full((b, a, rows), c.dspark_noise_token_id, device=device)
        ids[:, :, 0] = tokens[:, anchors + 1]
        embedded = F.embedding(ids.flatten(), backbone.embed.detach()).to(BF16)
        streams = embedded[:, None].expand(-1, c.hc_mult, -1).contiguous()
        mix = torch.zeros(len(streams), c.hc_mult, device=device)
        mix[:, 0] = 1

        def attention(attn, x):
            x = x.reshape(b, a * rows, -1)
            q, _ = attn.queries(x, cos[at], sin[at])
            own = attn.window(x, cos[at], sin[at]).reshape(b, a, rows, -1)
            context = attn.window(main, cos, sin)[:, window.clamp(min=0)]
            o, lse = attend_block(q.unflatten(2, (a, rows)), context, own, window >= 0)
            return attn.output(o.flatten(2, 3), lse.flatten(2, 3), cos[at], sin[at]).flatten(0, 1)

        for stage in self.stages:
            streams, mix = stage(streams, mix, lambda x, stage=stage: attention(stage.attn, x))
        drafted = collapse(streams, mix)
        base = head_logits(drafted, self.norm, backbone.head.detach(), c.rms_norm_eps)
        markov = F.embedding(tokens[:, at].flatten(), self.markov_embed).to(BF16)
        teacher = head_logits(
            hidden.reshape(b, t, -1)[:, at].flatten(0, 1),
            backbone.norm.detach(),
            backbone.head.detach(),
            c.rms_norm_eps,
        ).detach()
        loss, sure, match = draft_losses(base, markov, self.markov_head, drafted, self.confidence, teacher)
        loss, sure, match = (v.reshape(b, a, rows) for v in (loss, sure, match.detach()))
        reached = torch.cat([torch.ones_like(match[..., :1]), match.cumprod(-1)[..., :-1]], -1)
        position = 0.8 ** torch.arange(rows, device=device)
        certain = F.binary_cross_entropy_with_logits(sure, match, reduction="none") * reached
        return (loss * position).mean(), certain.sum() / reached.sum(), match
