"""A byte-level BPE vocabulary in the published form: the real pre-tokeniser rules, the real special tokens (protocol
spec 1.1 to 1.5), fewer merges."""

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from chat_format import ASSISTANT, BOS, DSML, END_THINK, EOS, PAD, SYSTEM, THINK, USER

VOCABULARY = 8192
IMAGE = "<｜deepseek_image｜>"
# Behind the merges, in published order.
ADDED = (
    SYSTEM,
    "<｜fim▁hole｜>",
    "<｜fim▁begin｜>",
    "<｜fim▁end｜>",
    USER,
    ASSISTANT,
    "<|EOT|>",
    THINK,
    END_THINK,
    DSML,
    "<｜latest_reminder｜>",
    "<｜action｜>",
    "<｜query｜>",
    "<｜authority｜>",
    "<｜domain｜>",
    "<｜title｜>",
    "<｜read_url｜>",
    IMAGE,
)
_WORDS = (
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)


def train_tokenizer(texts):
    """texts: iterable of strings. -> Tokenizer of VOCABULARY ids."""
    tokenizer = Tokenizer(models.BPE())
    splits = [
        pre_tokenizers.Split(Regex(pattern), "isolated")
        for pattern in ("\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", _WORDS)
    ]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        splits + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    first = [AddedToken(t, normalized=False, special=True) for t in (BOS, EOS, PAD)]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(ADDED),
        special_tokens=first,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=24,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(t, normalized=False, special=False) for t in ADDED])
    if tokenizer.get_vocab_size() != VOCABULARY:
        raise ValueError(f"{tokenizer.get_vocab_size()} tokens, not {VOCABULARY}: give more text")
    return tokenizer
