"""Convolutions, forwards and transposed, and their gradients."""

import torch
from torch.nn import functional as F

from .vectors import Vectors, record

# transposed, x, weight, bias, stride, padding (or "same"), dilation, groups, output_padding
CASES = [
    (0, (2, 2, 7), (3, 2, 3), 1, (1,), (0,), (1,), 1, (0,)),
    (0, (1, 4, 8), (2, 2, 3), 0, (2,), (2,), (2,), 2, (0,)),
    (0, (2, 2, 5), (2, 2, 4), 1, (1,), "same", (1,), 1, (0,)),
    (0, (1, 2, 4, 5), (3, 2, 2, 3), 1, (1, 1), (0, 0), (1, 1), 1, (0, 0)),
    (0, (1, 2, 5, 6), (2, 2, 2, 3), 1, (2, 1), (1, 2), (1, 2), 1, (0, 0)),
    (0, (1, 3, 4, 4), (6, 1, 3, 3), 0, (1, 1), (1, 1), (1, 1), 3, (0, 0)),
    (0, (1, 2, 4, 5), (1, 2, 2, 3), 1, (1, 1), "same", (2, 1), 1, (0, 0)),
    (0, (2, 3, 2, 3), (2, 3, 1, 1), 1, (1, 1), (0, 0), (1, 1), 1, (0, 0)),
    (0, (1, 1, 3, 4, 3), (2, 1, 2, 2, 2), 1, (1, 2, 1), (0, 1, 1), (1, 1, 2), 1, (0, 0, 0)),
    (1, (1, 2, 4), (2, 3, 3), 1, (2,), (1,), (1,), 1, (1,)),
    (1, (1, 4, 3), (4, 1, 2), 0, (3,), (0,), (2,), 2, (2,)),
    (1, (1, 2, 3, 3), (2, 2, 2, 3), 1, (1, 1), (0, 0), (1, 1), 1, (0, 0)),
    (1, (1, 2, 3, 2), (2, 2, 3, 2), 1, (2, 3), (1, 0), (1, 2), 1, (1, 2)),
    (1, (1, 2, 2, 2, 2), (2, 1, 2, 1, 2), 1, (2, 1, 2), (1, 0, 0), (1, 1, 1), 1, (1, 0, 0)),
]


def make():
    out = Vectors(
        "convolutions.txt",
        "Convolutions, and their gradients for an incoming gradient of 1, 2, 3, … Of each: "
        "transposed, groups, bias, same; the rest by its name.",
    )
    torch.manual_seed(3)
    for i, (transposed, x, w, b, stride, padding, dilation, groups, behind) in enumerate(CASES):
        n, name = len(x) - 2, f"{i}"
        same = padding == "same"
        out.put(f"{name}/about", [transposed, groups, b, int(same)])
        for word, values in (
            ("x_shape", x),
            ("w_shape", w),
            ("stride", stride),
            ("padding", [0] * n if same else padding),
            ("dilation", dilation),
            ("output_padding", behind),
        ):
            out.put(f"{name}/{word}", values)
        # Short numbers keep the file small.
        draw = lambda shape: torch.randint(-40, 41, shape).to(torch.float64) / 16
        inputs = [draw(x), draw(w)]
        if b:
            inputs.append(draw((w[1] * groups if transposed else w[0],)))
        for word, t in zip(("x", "w", "b"), inputs):
            out.put(f"{name}/{word}", t)
        for t in inputs:
            t.requires_grad_()
        bias = inputs[2] if b else None
        f = getattr(F, f"conv_transpose{n}d" if transposed else f"conv{n}d")
        options = dict(stride=stride, padding=padding, dilation=dilation, groups=groups)
        if transposed:
            options["output_padding"] = behind
        record(out, name, f(inputs[0], inputs[1], bias, **options), *inputs)

    # Padding modes of the modules.
    for mode in ("zeros", "reflect", "replicate", "circular"):
        for padding in ((1, 2), "same"):
            name = f"{mode}/{'same' if padding == 'same' else 'numbers'}"
            torch.manual_seed(4)
            m = torch.nn.Conv2d(1, 2, (2, 3), padding=padding, padding_mode=mode)
            m = m.to(torch.float64)
            x = torch.randint(-40, 41, (1, 4, 5)).to(torch.float64) / 16
            m.weight.data = torch.arange(12, dtype=torch.float64).reshape(2, 1, 2, 3) / 8 - 0.5
            m.bias.data = torch.tensor([0.5, -1], dtype=torch.float64)
            if name == "zeros/numbers":
                out.put("module/x", x)
            record(out, f"module/{name}", m(x.requires_grad_()), x, m.weight, m.bias)
    out.write()
