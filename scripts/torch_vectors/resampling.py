"""Images of other sizes, and gradients."""

import torch
from torch.nn import functional as F

from .vectors import Vectors, record

# mode, x, size or factors, align_corners, recompute_scale_factor
CASES = [
    ("nearest", (1, 2, 5), (8,), 0, 0),
    ("nearest", (1, 1, 3, 4), (5, 3), 0, 0),
    ("nearest", (1, 1, 4, 3), (1.7, 0.6), 0, 0),
    ("nearest", (1, 1, 2, 3, 2), (3, 2, 5), 0, 0),
    ("nearest-exact", (1, 1, 3, 4), (5, 3), 0, 0),
    ("nearest-exact", (1, 1, 5), (2.5,), 0, 0),
    ("linear", (1, 2, 5), (8,), 0, 0),
    ("linear", (1, 2, 5), (8,), 1, 0),
    ("linear", (1, 2, 5), (1.7,), 0, 0),
    ("linear", (1, 2, 5), (1.7,), 0, 1),
    ("bilinear", (1, 1, 3, 4), (5, 3), 0, 0),
    ("bilinear", (1, 1, 3, 4), (5, 3), 1, 0),
    ("bilinear", (1, 1, 4, 3), (2.0, 0.7), 0, 0),
    ("bilinear", (1, 1, 4, 3), (1, 7), 1, 0),
    ("bicubic", (1, 1, 3, 4), (5, 3), 0, 0),
    ("bicubic", (1, 1, 3, 4), (5, 6), 1, 0),
    ("bicubic", (1, 1, 4, 3), (1.6, 2.3), 0, 0),
    ("trilinear", (1, 1, 2, 3, 2), (3, 2, 3), 0, 0),
    ("trilinear", (1, 1, 2, 3, 2), (3, 4, 3), 1, 0),
    ("area", (1, 1, 3, 4), (5, 3), 0, 0),
]
MODES = ["nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic", "area"]


def make():
    out = Vectors(
        "resampling.txt",
        "interpolate(), and gradients for an incoming gradient of 1, 2, 3, … Of each: the mode's "
        "number, is it by factors, align_corners, recompute_scale_factor.",
    )
    torch.manual_seed(6)
    for i, (mode, shape, to, corners, recompute) in enumerate(CASES):
        factors = isinstance(to[0], float)
        out.put(f"{i}/about", [MODES.index(mode), int(factors), corners, recompute])
        out.put(f"{i}/x_shape", shape)
        out.put(f"{i}/to", to)
        x = torch.randint(-40, 41, shape).to(torch.float64) / 16
        out.put(f"{i}/x", x)
        options = {"scale_factor": to, "recompute_scale_factor": bool(recompute)} if factors else {
            "size": to}
        if "linear" in mode or mode == "bicubic":
            options["align_corners"] = bool(corners)
        y = F.interpolate(x.requires_grad_(), mode=mode, **options)
        out.put(f"{i}/y_shape", y.shape)
        record(out, f"{i}", y, x)
    out.write()
