"""Pooling and its gradients."""

import torch
from torch.nn import functional as F

from .vectors import Vectors, record

# x, kernel_size, stride, padding, dilation, ceil_mode
MAX = [
    ((2, 7), (3,), (2,), (1,), (1,), 0),
    ((1, 2, 8), (2,), (3,), (1,), (2,), 1),
    ((2, 4, 4), (2, 2), (2, 2), (0, 0), (1, 1), 0),
    ((1, 1, 5, 6), (3, 2), (2, 3), (1, 1), (1, 2), 1),
    ((1, 1, 5, 5), (3, 3), (1, 1), (1, 1), (1, 1), 0),
    ((1, 1, 4, 3, 5), (2, 3, 2), (1, 2, 2), (1, 1, 0), (1, 1, 2), 1),
]
# x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor (0: none)
MEAN = [
    ((2, 7), (3,), (2,), (1,), 0, 1, 0),
    ((1, 2, 8), (3,), (3,), (1,), 1, 0, 0),
    ((1, 2, 8), (3,), (3,), (1,), 1, 1, 0),
    ((2, 4, 4), (2, 2), (2, 2), (0, 0), 0, 1, 0),
    ((1, 1, 5, 6), (3, 2), (2, 3), (1, 1), 1, 1, 0),
    ((1, 1, 5, 6), (3, 2), (2, 3), (1, 1), 1, 0, 0),
    ((1, 1, 5, 6), (3, 2), (2, 3), (1, 1), 0, 1, 5),
    ((1, 1, 4, 3, 5), (2, 3, 2), (1, 2, 2), (1, 1, 0), 1, 0, 0),
]
# x, output_size
ADAPTIVE = [((2, 7), (3,)), ((1, 2, 6), (3,)), ((2, 5, 4), (3, 3)), ((1, 2, 4, 6), (2, 3)),
            ((1, 2, 3, 4), (1, 1)), ((1, 2, 2, 3), (4, 5)), ((1, 1, 3, 4, 5), (2, 3, 2))]
# x, norm_type, kernel_size, stride, ceil_mode
NORM = [((2, 7), 2, (3,), (2,), 0), ((1, 1, 5, 5), 3, (2, 2), (2, 2), 1),
        ((1, 1, 4, 3), 1.5, (2, 3), (1, 1), 0), ((1, 1, 3, 2, 4), 2, (2, 2, 2), (1, 1, 2), 0)]


def make():
    out = Vectors("pooling.txt", "Pooling, and gradients for an incoming gradient of 1, 2, 3, …")
    torch.manual_seed(5)

    def case(name, shape, positive=False, **numbers):
        for word, values in {"x_shape": shape, **numbers}.items():
            out.put(f"{name}/{word}", values if isinstance(values, (tuple, list)) else [values])
        # A permutation: no ties. Sixteenths are short.
        x = torch.randperm(torch.Size(shape).numel()).reshape(shape).to(torch.float64) / 16
        x = x + 0.25 if positive else x - 0.5
        out.put(f"{name}/x", x)
        return x.requires_grad_()

    for i, (shape, k, s, p, d, ceil) in enumerate(MAX):
        x = case(f"max/{i}", shape, kernel=k, stride=s, padding=p, dilation=d, ceil=ceil)
        f = getattr(F, f"max_pool{len(k)}d")
        y, at = f(x, k, s, p, d, ceil_mode=bool(ceil), return_indices=True)
        out.put(f"max/{i}/indices", at.reshape(-1).tolist())
        record(out, f"max/{i}", y, x)
    for i, (shape, k, s, p, ceil, include, divisor) in enumerate(MEAN):
        name = f"mean/{i}"
        x = case(name, shape, kernel=k, stride=s, padding=p, about=[ceil, include, divisor])
        f = getattr(F, f"avg_pool{len(k)}d")
        options = {"divisor_override": divisor} if divisor else {}
        y = f(x, k, s, p, bool(ceil), bool(include), **options)
        record(out, name, y, x)
    for i, (shape, to) in enumerate(ADAPTIVE):
        x = case(f"adaptive/{i}", shape, to=to)
        record(out, f"adaptive/{i}/mean", getattr(F, f"adaptive_avg_pool{len(to)}d")(x, to), x)
        f = getattr(F, f"adaptive_max_pool{len(to)}d")
        y, at = f(x, to, return_indices=True)
        out.put(f"adaptive/{i}/indices", at.reshape(-1).tolist())
        record(out, f"adaptive/{i}/max", y, x)
    for i, (shape, p, k, s, ceil) in enumerate(NORM):
        x = case(f"norm/{i}", shape, positive=True, kernel=k, stride=s, about=[p, ceil])
        f = getattr(F, f"lp_pool{len(k)}d")
        if len(k) == 1:  # takes numbers alone
            k, s = k[0], s[0]
        record(out, f"norm/{i}", f(x, p, k, s, bool(ceil)), x)
    out.write()
