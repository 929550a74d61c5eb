"""Clipping of gradients by norm and by value."""

import math

import torch

from .vectors import Vectors


def make():
    out = Vectors("clip_grad.txt", "Joint norms, and gradients after clipping.")
    torch.manual_seed(2)
    # One parameter without a gradient stands between the others.
    grads = [torch.randn(2, 3, dtype=torch.float64), torch.randn(4, dtype=torch.float64)]
    grads += [torch.randn((), dtype=torch.float64)]
    for i, g in enumerate(grads):
        out.put(f"grad{i}", g)

    def parameters(dtype):
        params = [torch.zeros(g.shape, dtype=dtype, requires_grad=True) for g in grads]
        for p, g in zip(params, grads):
            p.grad = g.to(dtype).clone()  # clipped in place
        return params[:1] + [torch.zeros(7, dtype=dtype, requires_grad=True)] + params[1:]

    for dtype, dtype_name in ((torch.float64, "float64"), (torch.float32, "float32")):
        for norm, norm_name in ((1, "1"), (2, "2"), (3, "3"), (0.5, "0.5"), (math.inf, "inf")):
            for limit, word in ((0.75, "clipped"), (1e4, "within")):
                params = parameters(dtype)
                total = torch.nn.utils.clip_grad_norm_(params, limit, norm_type=norm)
                name = f"norm/{norm_name}/{word}/{dtype_name}"
                out.put(f"{name}/total", total)
                for i, p in enumerate(q for q in params if q.grad is not None):
                    out.put(f"{name}/grad{i}", p.grad)
    params = parameters(torch.float64)
    torch.nn.utils.clip_grad_value_(params, 0.5)
    for i, p in enumerate(q for q in params if q.grad is not None):
        out.put(f"value/grad{i}", p.grad)
    # What the norm of gradients with an infinity or a NaN is.
    for bad, word in ((math.inf, "inf"), (-math.inf, "minus_inf"), (math.nan, "nan")):
        for norm, norm_name in ((1, "1"), (2, "2"), (math.inf, "inf")):
            params = parameters(torch.float64)
            params[0].grad[1, 2] = bad
            total = torch.nn.utils.clip_grad_norm_(params, 1.0, norm_type=norm)
            out.put(f"nonfinite/{word}/{norm_name}/total", total)
    out.write()
