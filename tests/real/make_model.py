"""Makes a tiny llama model with random weights: its text is nonsense, its engine and its streaming are real.

usage: make_model.py FILE.gguf
"""

import json
import pathlib
import sys
import sysconfig

import gguf
import numpy
import tokenizers

VOCABULARY, WIDTH, LAYERS, HEADS, FEED_FORWARD, CONTEXT = 8000, 256, 4, 8, 688, 65536
SPECIAL = ["<|begin|>", "<|end|>"]
TEMPLATE = (
    "{{ '<|begin|>' }}{% for message in messages %}{{ message.role }}: {{ message.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def trained_tokenizer():
    """Returns a byte-level BPE trained on Python's standard library: equal on every machine with the same Python."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library = pathlib.Path(sysconfig.get_path("stdlib"))
    texts = (path.read_text(encoding="utf-8", errors="ignore") for path in sorted(library.glob("*.py")))
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def write_vocabulary(writer, tokenizer):
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    kinds = [gguf.TokenType.CONTROL if token in SPECIAL else gguf.TokenType.NORMAL for token in tokens]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    return len(tokens)


def write_weights(writer, vocabulary):
    random = numpy.random.default_rng(20)

    def normal(name, *shape):
        writer.add_tensor(name, (random.standard_normal(shape) * 0.08).astype(numpy.float16))

    def ones(name):
        writer.add_tensor(name, numpy.ones(WIDTH, dtype=numpy.float32))

    normal("token_embd.weight", vocabulary, WIDTH)
    normal("output.weight", vocabulary, WIDTH)
    ones("output_norm.weight")
    for layer in range(LAYERS):
        ones(f"blk.{layer}.attn_norm.weight")
        ones(f"blk.{layer}.ffn_norm.weight")
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            normal(f"blk.{layer}.{part}.weight", WIDTH, WIDTH)
        normal(f"blk.{layer}.ffn_gate.weight", FEED_FORWARD, WIDTH)
        normal(f"blk.{layer}.ffn_up.weight", FEED_FORWARD, WIDTH)
        normal(f"blk.{layer}.ffn_down.weight", WIDTH, FEED_FORWARD)


def main(path):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    vocabulary = write_vocabulary(writer, trained_tokenizer())
    writer.add_vocab_size(vocabulary)
    write_weights(writer, vocabulary)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(sys.argv[1])
