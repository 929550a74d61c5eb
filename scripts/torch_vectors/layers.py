"""Layers that move or pad elements, and activations as modules: values and gradients."""

import torch
from torch import nn

from .vectors import Vectors, draw, record


def make():
    out = Vectors("layers.txt", "Layers by name; gradients for an incoming gradient of 1, 2, 3, …")
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    x = [draw(out, f"x{d}", *shape) for d, shape in ((1, (2, 4, 3)), (2, (1, 4, 3, 2)), (3, (1, 4, 2, 3, 2)))]
    for d in (1, 2, 3):
        frame = (1, 0, 1, 1, 0, 1)[: 2 * d]
        for kind in ("Reflection", "Replication", "Circular", "Zero"):
            record(out, f"{kind}Pad{d}d", getattr(nn, f"{kind}Pad{d}d")(frame)(x[d - 1]), x[d - 1])
        record(out, f"ConstantPad{d}d", getattr(nn, f"ConstantPad{d}d")(frame, 2.5)(x[d - 1]), x[d - 1])
        large = draw(out, f"large{d}", 1, 2, *(4,) * d)
        _, where = getattr(nn, f"MaxPool{d}d")(2, return_indices=True)(large)
        out.put(f"MaxUnpool{d}d/indices", where)
        small = draw(out, f"small{d}", *where.shape)
        record(out, f"MaxUnpool{d}d", getattr(nn, f"MaxUnpool{d}d")(2)(small, where), small)
    maps = draw(out, "maps", 1, 4, 4, 2)
    for module in (nn.PixelShuffle(2), nn.PixelUnshuffle(2), nn.Unfold(2), nn.Flatten()):
        record(out, type(module).__name__, module(maps), maps)
    record(out, "Unflatten", nn.Unflatten(1, (2, 2))(maps), maps)
    v = draw(out, "v", 4, 6)
    for module in (
        nn.CELU(0.7), nn.ELU(0.7), nn.GLU(1), nn.Hardshrink(0.3), nn.Hardsigmoid(), nn.Hardswish(),
        nn.Hardtanh(-0.7, 0.9), nn.LeakyReLU(0.2), nn.LogSigmoid(), nn.Mish(), nn.ReLU6(), nn.SELU(),
        nn.Softmin(1), nn.Softshrink(0.3), nn.Softsign(), nn.Tanhshrink(), nn.Threshold(0.1, 2.0),
        nn.Softplus(2.0, 1.5), nn.SiLU(), nn.GELU(), nn.Identity(), nn.RReLU(0.1, 0.3).eval(),
    ):  # fmt: skip
        record(out, type(module).__name__, module(v), v)
    w = draw(out, "w", 6)
    layer = nn.PReLU(6)
    layer.weight.data = w.detach().clone()
    record(out, "PReLU", layer(v), v, layer.weight)
    u = draw(out, "u", 4, 6)
    record(out, "CosineSimilarity", nn.CosineSimilarity(1, 1e-6)(v, u), v, u)
    record(out, "PairwiseDistance", nn.PairwiseDistance(3.0)(v, u), v, u)
    out.write()
    torch.set_default_dtype(torch.float32)
