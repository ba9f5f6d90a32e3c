"""Between the training modules and the published on-disk format (model spec 3).

python3 export.py --from DIR --out DIR      re-shards a checkpoint into the published arrangement
"""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import torch

import config_tiny  # puts tools/oracle on the path
import numerics as nm
import safetensors_io
from chat_format import BOS, EOS, PAD
from checkpoint import CheckpointWeights, inventory, shard_order


def _block(prefix, block):
    a, f = block.attn, block.ffn
    for name in ("wq_a", "wq_b", "wkv", "wo_a", "wo_b"):
        yield f"{prefix}.attn.{name}", "fp8", getattr(a, name)
    for name in ("q_norm", "kv_norm"):
        yield f"{prefix}.attn.{name}.weight", "bf16", getattr(a, name)
    yield f"{prefix}.attn.attn_sink", "f32", a.attn_sink
    for site in ("attn", "ffn"):
        hyper = getattr(block, f"hc_{site}")
        yield f"{prefix}.{site}_norm.weight", "bf16", hyper.norm
        for name in ("fn", "base", "scale"):
            yield f"{prefix}.hc_{site}_{name}", "f32", getattr(hyper, name)
    yield f"{prefix}.ffn.gate.weight", "bf16", f.gate
    yield f"{prefix}.ffn.gate.bias", "f32", f.bias
    yield f"{prefix}.ffn.gate.bias_vl", "f32", f.bias  # no pictures in training: the same bias
    for part in ("w1", "w2", "w3"):
        yield f"{prefix}.ffn.shared_experts.{part}", "fp8", getattr(f, f"shared_{part}")
        for e in range(len(f.bias)):
            yield f"{prefix}.ffn.experts.{e}.{part}", "fp4", getattr(f, part)[e]


def tensors(backbone, drafts):
    """(published name, format, tensor) of everything; quantised names are without `.weight`. drafts may be None."""
    yield "embed.weight", "bf16", backbone.embed
    yield "head.weight", "bf16", backbone.head
    yield "norm.weight", "bf16", backbone.norm
    for i, block in enumerate(backbone.layers):
        yield from _block(f"layers.{i}", block)
        a = block.attn
        if a.owner:
            yield f"layers.{i}.attn.compressor.wkv.weight", "bf16", a.c_wkv
            if a.ratio > 1:
                yield f"layers.{i}.attn.compressor.wgate.weight", "bf16", a.c_wgate
            yield f"layers.{i}.attn.compressor.norm.weight", "bf16", a.c_norm
            yield f"layers.{i}.attn.indexer.wk.weight", "bf16", a.i_wk
            yield f"layers.{i}.attn.indexer.k_norm.weight", "bf16", a.i_k_norm
        if a.source:
            yield f"layers.{i}.attn.indexer.wq_b", "fp8", a.i_wq_b
            yield f"layers.{i}.attn.indexer.weights_proj.weight", "bf16", a.i_weights
    for layer, engram in backbone.engrams.items():
        name = f"layers.{layer}.engram"
        yield f"{name}.embed", "rows", engram.table
        yield f"{name}.wkv", "fp8", engram.wkv
        yield f"{name}.q_weight", "bf16", engram.q_weight
        yield f"{name}.k_weight", "bf16", engram.k_weight
    if drafts is None:
        return
    for i, block in enumerate(drafts.stages):
        yield from _block(f"mtp.{i}", block)
    last = f"mtp.{len(drafts.stages) - 1}"
    yield "mtp.0.main_proj", "fp8", drafts.main_proj
    yield "mtp.0.main_norm.weight", "bf16", drafts.main_norm
    yield f"{last}.norm.weight", "bf16", drafts.norm
    yield f"{last}.markov_head.embed.weight", "bf16", drafts.markov_embed
    yield f"{last}.markov_head.head.weight", "bf16", drafts.markov_head
    yield f"{last}.confidence_head.proj.weight", "bf16", drafts.confidence


def stored(name, kind, tensor):
    """{published name: (dtype tag, array)} of one tensor: the same rounding as in training."""
    w = tensor.detach().float().cpu().numpy()
    if kind == "f32":
        return {name: ("F32", w)}
    if kind == "bf16":
        return {name: ("BF16", nm.bf16_to_bits(nm.bf16_round(w)))}
    if kind == "fp4":
        codes, scales = nm.weight_fp4_encode(w)
        return {name + ".weight": ("I8", codes.view(np.int8)), name + ".scale": ("F8_E8M0", scales)}
    codes, scales = (nm.rows_fp8_encode if kind == "rows" else nm.weight_fp8_encode)(w)
    return {name + ".weight": ("F8_E4M3", codes), name + ".scale": ("F8_E8M0", scales)}


def write_checkpoint(directory, data, arrays, largest_shard=None):
    """arrays: {name: (tag, array)}. Shards are the published ones, or as many of them in a file as fit in
    `largest_shard` bytes."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    keys = shard_order(data)
    files = [[] for _ in keys]
    for name, tag, shape, key in inventory(data):
        if list(arrays[name][1].shape) != shape:
            raise ValueError(f"{name} has shape {arrays[name][1].shape}, the config says {shape}")
        files[keys.index(key)].append(name)
    if largest_shard:
        files = _packed(files, arrays, largest_shard)
    weight_map, total = {}, 0
    for number, names in enumerate(files, 1):
        filename = f"model-{number:05d}-of-{len(files):05d}.safetensors"
        total += safetensors_io.write(str(directory / filename), {n: arrays[n] for n in names}, {"format": "pt"})
        weight_map.update(dict.fromkeys(names, filename))
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    (directory / "config.json").write_text(json.dumps(data, indent=2) + "\n")


def _packed(files, arrays, largest):
    packed, size = [[]], 0
    for names in files:
        bytes_here = sum(arrays[n][1].nbytes for n in names)
        if size + bytes_here > largest and packed[-1]:
            packed.append([])
            size = 0
        packed[-1] += names
        size += bytes_here
    return packed


def export(directory, data, backbone, drafts, tokenizer_path, largest_shard=None):
    arrays = {}
    for name, kind, tensor in tensors(backbone, drafts):
        arrays.update(stored(name, kind, tensor))
    write_checkpoint(directory, data, arrays, largest_shard)
    copy_tokenizer(tokenizer_path, directory, data)


def copy_tokenizer(path, directory, data):
    """tokenizer.json, and tokenizer_config.json for programs that want one."""
    shutil.copy(path, Path(directory) / "tokenizer.json")
    settings = {
        "add_bos_token": False,
        "add_eos_token": False,
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "model_max_length": data["text_config"]["max_position_embeddings"],
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
    (Path(directory) / "tokenizer_config.json").write_text(text)


@torch.no_grad()
def load_checkpoint(backbone, drafts, directory):
    """Sets the parameters to the dequantised tensors of a checkpoint."""
    weights = CheckpointWeights(str(directory))
    for name, kind, tensor in tensors(backbone, drafts):
        if name.endswith(".bias_vl"):
            continue
        if kind == "rows":
            value = weights.rows(name + ".weight", np.arange(len(tensor)))
        else:
            value = weights.matrix(name + (".weight" if kind in ("fp8", "fp4") else ""))
        tensor.copy_(torch.from_numpy(np.asarray(value, dtype=np.float32)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="source", required=True, help="checkpoint directory to read")
    parser.add_argument("--out", required=True, help="directory to write")
    arguments = parser.parse_args()
    data = json.loads((Path(arguments.source) / "config.json").read_text())
    weights = CheckpointWeights(arguments.source)
    arrays = {name: weights.raw(name) for name in weights.weight_map}
    write_checkpoint(arguments.out, data, arrays)
    copy_tokenizer(Path(arguments.source) / "tokenizer.json", arguments.out, data)


if __name__ == "__main__":
    main()
