"""Attention: values, and gradients of inputs and parameters."""

import torch
from torch import nn
from torch.nn import functional as F

from .vectors import Vectors, draw, record, record_module

INF = float("inf")


def make():
    out = Vectors("attention.txt", "Attention; gradients for an incoming gradient of 1, 2, 3, …")
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    products(out)
    heads(out)
    out.write()
    torch.set_default_dtype(torch.float32)


def products(out):
    q, k, v = draw(out, "q", 2, 3, 4), draw(out, "k", 2, 5, 4), draw(out, "v", 2, 5, 3)
    several = draw(out, "several_q", 2, 2, 3, 4)
    seen = torch.tensor([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], dtype=torch.bool)
    added = torch.linspace(-1, 1, 15).reshape(3, 5).clone()
    added[1] = -INF
    added[2, 3] = -INF
    out.put("added", added)
    added.requires_grad_()
    sdpa = F.scaled_dot_product_attention
    record(out, "attention/plain", sdpa(q, k, v), q, k, v)
    record(out, "attention/scale", sdpa(q, k, v, scale=1.7), q, k, v)
    record(out, "attention/causal", sdpa(q, k, v, is_causal=True), q, k, v)
    record(out, "attention/long_causal", sdpa(k, q, v[:, :3], is_causal=True), k, q)
    record(out, "attention/bool", sdpa(q, k, v, seen), q, k, v)
    record(out, "attention/float", sdpa(q, k, v, added), q, k, v, added)
    record(out, "attention/heads", sdpa(several, k[:, None], v[:, None], seen), several, k, v)


def heads(out):
    query, memory = draw(out, "query", 3, 2, 4), draw(out, "memory", 4, 2, 4)
    key, value = draw(out, "key", 4, 2, 3), draw(out, "value", 4, 2, 2)
    padding = torch.tensor([[0, 0, 1, 0], [1, 0, 0, 1]], dtype=torch.bool)
    hidden = torch.tensor([[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]], dtype=torch.bool)
    added = torch.linspace(-1, 1, 12).reshape(3, 4)
    each = torch.linspace(-1, 1, 48).reshape(4, 3, 4)

    def both(name, module, *inputs, **options):
        record_module(out, f"{name}/y", module, inputs, lambda y: y[0], **options)
        out.put(f"{name}/weights", module(*inputs, **options)[1])
        options["average_attn_weights"] = False
        out.put(f"{name}/each", module(*inputs, **options)[1])

    both("self", nn.MultiheadAttention(4, 2), query, query, query)
    both("cross", nn.MultiheadAttention(4, 2, bias=False), query, memory, memory, attn_mask=added)
    both("sizes", nn.MultiheadAttention(4, 2, kdim=3, vdim=2), query, key, value, attn_mask=each)
    more = nn.MultiheadAttention(4, 2, add_bias_kv=True, add_zero_attn=True)
    both("more", more, query, memory, memory, key_padding_mask=padding, attn_mask=hidden)
    floats = torch.where(padding, -INF, 0.0)
    both("floats", nn.MultiheadAttention(4, 4), query, memory, memory, key_padding_mask=floats)
