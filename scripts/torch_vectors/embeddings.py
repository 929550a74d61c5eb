"""Embeddings: values, and gradients of the table and of factors."""

import torch
from torch.nn import functional as F

from .vectors import Vectors, draw, record

INF = float("inf")


def make():
    out = Vectors("embeddings.txt", "Embeddings; gradients for an incoming gradient of 1, 2, 3, …")
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    embeddings(out)
    out.write()
    torch.set_default_dtype(torch.float32)


def embeddings(out):
    weight = draw(out, "table", 5, 3)
    indices = torch.tensor([[1, 4, 0], [4, 4, 2]])
    for name, options in (
        ("plain", {}),
        ("padded", {"padding_idx": 4}),
        ("padded_from_the_end", {"padding_idx": -5}),
        ("by_frequency", {"scale_grad_by_freq": True}),
        ("both", {"padding_idx": 0, "scale_grad_by_freq": True}),
    ):
        record(out, f"embedding/{name}", F.embedding(indices, weight, **options), weight)
    for name, norm in (("two", 2.0), ("one", 1.0), ("largest", INF)):
        short = weight.detach().clone()
        F.embedding(indices, short, max_norm=0.75, norm_type=norm)
        out.put(f"renorm/{name}", short)

    flat = indices.reshape(-1)
    factors = draw(out, "factors", 6)
    for mode in ("sum", "mean", "max"):
        often = {"scale_grad_by_freq": mode != "max"}
        for name, options in (
            ("rows", {"input": indices}),
            ("offsets", {"input": flat, "offsets": torch.tensor([0, 2, 2, 3])}),
            (
                "ends",
                {"input": flat, "offsets": torch.tensor([0, 4, 6]), "include_last_offset": True},
            ),
            ("padded", {"input": indices, "padding_idx": 4}),
            ("only_padding", {"input": indices[:, :2], "padding_idx": 4}),
            ("by_frequency", {"input": indices, **often}),
        ):
            y = F.embedding_bag(weight=weight, mode=mode, **options)
            record(out, f"bag/{mode}/{name}", y, weight)
    y = F.embedding_bag(
        flat, weight, torch.tensor([0, 2, 2, 3]), mode="sum", per_sample_weights=factors
    )
    record(out, "bag/sum/weighted", y, weight, factors)
