"""config.json of folio-tiny: the published keys with small sizes, all features live."""

import copy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "oracle"))

from checkpoint import published_config  # noqa: E402  tools/oracle
from config import Config, engram_primes  # noqa: E402
from engram import token_map_from_tokenizer  # noqa: E402

TINY = dict(
    vocab_size=8192,
    hidden_size=256,
    moe_intermediate_size=128,
    num_hidden_layers=10,
    num_attention_heads=8,
    head_dim=64,
    qk_rope_head_dim=32,
    q_lora_rank=128,
    o_lora_rank=64,
    o_groups=4,
    max_position_embeddings=16384,
    rope_scaling={
        "rope_type": "yarn",
        "factor": 16,
        "beta_fast": 32,
        "beta_slow": 1,
        "original_max_position_embeddings": 1024,
    },
    n_routed_experts=16,
    num_experts_per_tok=4,
    sliding_window=64,
    # window-only 0, 1; full (ratio 2) 2; reuse 3, 4; full (ratio 1) and candidate source 5; reuse 6, 8, 9; reindex 7
    compress_ratios=[0, 0, 2, 2, 2, 1, 1, 1, 1, 1, 0, 0, 0],
    kv_source_layer_ids=[2, 5],
    index_source_layer_ids=[2, 5, 7],
    index_n_heads=4,
    index_head_dim=64,
    index_topk=256,
    candidate_source_layer_id=5,
    candidate_topk_blocks=64,
    candidate_block_size=8,
    engram_layer_ids=[1, 4],
    engram_vocab_size=4500,
    engram_n_heads=4,
    engram_head_dim=32,
    dspark_target_layer_ids=[7, 8, 9],
    dspark_markov_rank=32,
    dspark_n_routed_experts=8,
    dspark_num_experts_per_tok=2,
)


def tiny_config(tokenizer_path, changes=None):
    """-> (content of config.json, Config, compressed token map)."""
    from tokenizer import IMAGE
    from chat_format import SYSTEM
    from tokenizers import Tokenizer

    data = copy.deepcopy(published_config())
    del data["vision_config"]
    text = data["text_config"]
    text.update(TINY, **(changes or {}))
    tokenizer = Tokenizer.from_file(str(tokenizer_path))
    data["image_token_id"] = tokenizer.token_to_id(IMAGE)
    text["dspark_noise_token_id"] = tokenizer.token_to_id(SYSTEM)
    token_map, text["engram_compressed_vocab_size"] = token_map_from_tokenizer(str(tokenizer_path))
    text["engram_num_embeddings"] = [sum(map(sum, layer)) for layer in engram_primes(Config.from_json(data))]
    return data, Config.from_json(data), token_map
