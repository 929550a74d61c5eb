"""Transformers and their layers: values, and gradients of inputs and parameters."""

import torch
from torch import nn

from .vectors import Vectors, draw, record_module


def make():
    out = Vectors("transformers.txt", "Transformers; gradients for an incoming gradient of 1, 2, 3, …")
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    transformers(out)
    out.write()
    torch.set_default_dtype(torch.float32)


def transformers(out):
    src, tgt = draw(out, "src", 3, 2, 4), draw(out, "tgt", 2, 2, 4)
    padding = torch.tensor([[0, 0, 1], [0, 0, 0]], dtype=torch.bool)
    sizes = {"dim_feedforward": 5, "dropout": 0.0}
    for activation in ("relu", "gelu"):
        layer = nn.TransformerEncoderLayer(4, 2, activation=activation, **sizes)
        record_module(out, f"encoder_layer/{activation}", layer, [src], src_key_padding_mask=padding)
    ahead = nn.Transformer.generate_square_subsequent_mask(2)
    record_module(out, "decoder_layer", nn.TransformerDecoderLayer(4, 2, **sizes), [tgt, src],
                  tgt_mask=ahead, memory_key_padding_mask=padding)  # fmt: skip
    layer = nn.TransformerEncoderLayer(4, 2, **sizes)
    record_module(out, "encoder", nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), [src],
                  all_gradients=False, mask=nn.Transformer.generate_square_subsequent_mask(3))  # fmt: skip
    whole = nn.Transformer(4, 2, 1, 1, 5, 0.0)
    record_module(out, "transformer", whole, [src, tgt], all_gradients=False,
                  tgt_mask=ahead, src_key_padding_mask=padding)  # fmt: skip
