"""A tiny GGUF: a llama of 15 million random weights, so that a real engine measures real work in 0.2 s."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

# 9 heads of 32: the width of a head must be a multiple of a quantised cache's block (32)
WIDTH, LAYERS, HEADS, FEED_FORWARD, VOCABULARY = 288, 6, 9, 768, 32_000


def write_tiny_model(path: Path) -> Path:
    """Q8_0, about 16 MB, the same bytes every time. It has no tokenizer: what it says is noise anyway."""
    random = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("random-15m")
    writer.add_context_length(8192)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(VOCABULARY)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_tokenizer_model("no_vocab")

    block, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType.Q8_0]

    def matrix(name: str, rows: int, columns: int) -> None:
        blocks = random.integers(0, 256, (rows * columns // block, block_bytes), dtype=np.uint8)
        blocks[:, 0:2] = np.frombuffer(np.float16(2e-4).tobytes(), np.uint8)  # each block's scale: keeps values small
        writer.add_tensor(
            name, blocks.reshape(rows, columns // block * block_bytes), raw_dtype=gguf.GGMLQuantizationType.Q8_0
        )

    def ones(name: str) -> None:
        writer.add_tensor(name, np.ones(WIDTH, np.float32))

    matrix("token_embd.weight", VOCABULARY, WIDTH)  # tied: it is the output layer too
    ones("output_norm.weight")
    for layer in range(LAYERS):
        prefix = f"blk.{layer}."
        ones(prefix + "attn_norm.weight")
        ones(prefix + "ffn_norm.weight")
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            matrix(f"{prefix}{part}.weight", WIDTH, WIDTH)
        matrix(prefix + "ffn_gate.weight", FEED_FORWARD, WIDTH)
        matrix(prefix + "ffn_up.weight", FEED_FORWARD, WIDTH)
        matrix(prefix + "ffn_down.weight", WIDTH, FEED_FORWARD)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
