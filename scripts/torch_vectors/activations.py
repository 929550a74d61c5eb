"""Activations and their derivatives."""

import torch
from torch.nn import functional as F

from .vectors import Vectors, record


def make():
    out = Vectors("activations.txt", "Activations at 31 points, and their derivatives.")
    x = torch.tensor(
        [-30, -12, -8, -6, -5, -4, -3.5, -3, -2.5, -2, -1.5, -1, -0.75, -0.5, -0.25, -1e-3]
        + [0, 1e-8, 1e-3, 0.1, 0.3, 0.7, 1, 1.25, 1.75, 2.25, 3, 4.5, 7, 10, 30],
        dtype=torch.float64,
    )
    out.put("x", x)
    table = {
        "gelu_none": F.gelu,
        "gelu_tanh": lambda v: F.gelu(v, approximate="tanh"),
        "silu": F.silu,
        # By default torch returns x beyond 20 and loses the last digits there; ours has no threshold.
        "softplus": lambda v: F.softplus(v, threshold=700),
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "relu": F.relu,
    }
    for name, f in table.items():
        v = x.clone().requires_grad_()
        y = f(v)
        out.put(f"{name}/value", y)
        out.put(f"{name}/derivative", torch.autograd.grad(y.sum(), v)[0])
    v = x.reshape(1, 31).clone().requires_grad_()
    for name, f in (("softmax", F.softmax), ("log_softmax", F.log_softmax)):
        record(out, name, f(v, dim=-1), v)
    out.write()
