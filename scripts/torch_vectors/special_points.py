"""Values and gradients where functions have kinks, ties, poles and bounds, and of inf and NaN."""

import math

import torch
from torch.nn import functional as F

from .vectors import Vectors

f64 = dict(dtype=torch.float64)

POINTS = [-math.inf, -65504, -7, -3, -2.5, -2, -1.5, -1, -0.5, -0.25, -0.0, 0, 0.25, 0.5, 1, 1.5, 2, 2.5, 3, 6, 7, 20, 100,
          math.inf, math.nan]
PAIRS = [-math.inf, -2.5, -1, -0.0, 0, 0.5, 1, 2.5, 3, math.inf, math.nan]
# Ties, zeros, neither; (3, 4).
X = [[1, -2, 0, 3, -1, 1, 2, 2, 0, 0, -3, 1], [0] * 12, [0.3, -1.7, 2.2, 0.9, -0.4, 1.1, 2.6, -2.9, 0.05, 1.3, -0.75, 0.6]]
Y = [[1, 2, 0, -3, 1, -1, 2, -2, 0, 1, 3, -1], [0] * 12, [1.3, -0.7, 0.2, 0.9, -1.4, 2.1, 0.6, -1.9, 2.05, 0.3, -0.15, 1.6]]

ONE = """abs acos acosh asin asinh atan atanh ceil cos cosh erf erfc erfinv exp exp2 expm1 floor frac log log10 log1p log2 logit
neg reciprocal relu round rsqrt sigmoid sign sin sinc sinh sqrt square tan tanh trunc nan_to_num""".split()
LAYERS = """relu6 leaky_relu elu selu celu gelu softplus hardtanh hardsigmoid hardswish silu mish softsign tanhshrink softshrink
hardshrink logsigmoid""".split()
MORE = {
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "clamp": lambda x: torch.clamp(x, -1, 2),
    "clamp_min": lambda x: torch.clamp_min(x, 0.5),
    "clamp_max": lambda x: torch.clamp_max(x, 0.5),
    "clamp_crossed": lambda x: torch.clamp(x, 2, -1),
    "threshold": lambda x: F.threshold(x, 1, 7),
    "logit_eps": lambda x: torch.logit(x, 0.25),
    "elu_half": lambda x: F.elu(x, 0.5),
    "softshrink_one": lambda x: F.softshrink(x, 1),
    "two_over": lambda x: 2 / x,
    **{f"pow_{p:g}": lambda x, p=p: torch.pow(x, p) for p in (0, 0.5, 1, 2, 3, -0.5, -1, -2)},
    **{f"to_the_{b:g}": lambda x, b=b: torch.pow(b, x) for b in (0.0, 0.5, 1.0, 2.0, -2.0)},
    **{f"remainder_{b:g}": lambda x, b=b: torch.remainder(x, b) for b in (2.5, -2.5, 0.0)},
    **{f"fmod_{b:g}": lambda x, b=b: torch.fmod(x, b) for b in (2.5, -2.5, 0.0)},
}
TWO = "add sub mul div pow maximum minimum fmax fmin atan2 hypot remainder fmod copysign xlogy".split()
MORE_OF_TWO = {
    "clamp_min": lambda x, y: torch.clamp(x, min=y),
    "clamp_max": lambda x, y: torch.clamp(x, max=y),
    "floor_divide": lambda x, y: torch.floor_divide(x.detach(), y.detach()),
    "trunc_divide": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "lerp": lambda x, y: torch.lerp(x, y, 0.25),
    "huber_loss": lambda x, y: F.huber_loss(x, y, reduction="none"),
    "smooth_l1_loss": lambda x, y: F.smooth_l1_loss(x, y, reduction="none"),
    "l1_loss": lambda x, y: F.l1_loss(x, y, reduction="none"),
}
ROWS = {
    **{f: lambda x, y, f=f: getattr(torch, f)(x, 1) for f in
       "amax amin cumsum cumprod logcumsumexp prod softmax log_softmax logsumexp std var nansum nanmean".split()},
    **{f"norm_{p:g}": lambda x, y, p=p: torch.norm(x, p, 1) for p in (0, 0.5, 1, 2, 3, math.inf, -math.inf)},
    **{f"cdist_{p:g}": lambda x, y, p=p: torch.cdist(x, y, p) for p in (0, 1, 2, 3)},
    **{f"dist_{p:g}": lambda x, y, p=p: torch.dist(x, y, p) for p in (1, 2, 3, math.inf)},
    **{f"scatter_{r}": lambda x, y, r=r: x.scatter_reduce(1, torch.tensor([[0, 0, 1, 3], [2, 2, 2, 2], [3, 1, 0, 0]]), y, r)
       for r in ("sum", "prod", "mean", "amin", "amax")},
    "max": lambda x, y: x.max(), "min": lambda x, y: x.min(),
    "cummax": lambda x, y: torch.cummax(x, 1).values,
    "diff": lambda x, y: torch.diff(x, 1, 1),
    "renorm": lambda x, y: torch.renorm(x, 2, 0, 1.5),
    "cosine_similarity": lambda x, y: F.cosine_similarity(x, y, 1),
    "normalize": lambda x, y: F.normalize(x, 2, 1),
    "pairwise_distance": lambda x, y: F.pairwise_distance(x, y),
    "index_fill": lambda x, y: x.index_fill(1, torch.tensor([0, 0, 3]), y.sum()),
    "index_add": lambda x, y: x.index_add(0, torch.tensor([0, 0, 2]), y, alpha=2),
    "max_pool2d": lambda x, y: F.max_pool2d(x.reshape(1, 1, 3, 4), 2, 1),
    "avg_pool2d": lambda x, y: F.avg_pool2d(x.reshape(1, 1, 3, 4), 2, 2, 1, ceil_mode=True),
    "multi_margin_loss": lambda x, y: F.multi_margin_loss(x, torch.tensor([0, 2, 1]), reduction="none"),
    "histc": lambda x, y: torch.histc(x.detach(), 4, -2, 2),
    "glu": lambda x, y: F.glu(x, 1),
}


def make():
    out = Vectors("special_points.txt", "Values, and gradients for an incoming gradient of 1, 2, 3, …", digits=12)

    def record(name, function, *inputs):
        inputs = [i.clone().requires_grad_() for i in inputs]
        y = function(*inputs)
        out.put(name + "/value", y.detach())
        if y.requires_grad:
            y.backward(torch.arange(1, y.numel() + 1, **f64).reshape(y.shape))
            for i, x in zip("xy", inputs):
                if x.grad is not None:
                    out.put(f"{name}/d{i}", x.grad)

    points = out.put("points", torch.tensor(POINTS, **f64))
    for name in ONE:
        record("one/" + name, getattr(torch, name), points)
    for name in LAYERS:
        record("one/" + name, getattr(F, name), points)
    for name, function in MORE.items():
        record("one/" + name, function, points)
    pairs = torch.cartesian_prod(torch.tensor(PAIRS, **f64), torch.tensor(PAIRS, **f64))
    x, y = out.put("pairs/x", pairs[:, 0].contiguous()), out.put("pairs/y", pairs[:, 1].contiguous())
    for name in TWO:
        record("two/" + name, getattr(torch, name), x, y)
    for name, function in MORE_OF_TWO.items():
        record("two/" + name, function, x, y)
    for i, (a, b) in enumerate(zip(X, Y)):
        a, b = (out.put(f"rows{i}/{n}", torch.tensor(v, **f64).reshape(3, 4)) for n, v in (("x", a), ("y", b)))
        for name, function in ROWS.items():
            record(f"rows{i}/{name}", function, a, b)
    out.write()
