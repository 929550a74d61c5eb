#!/usr/bin/env python3
"""Writes tests/vectors/*.txt: what PyTorch makes of small problems that the tests state again.

    python3 -m venv venv && venv/bin/pip install torch==2.15.0
    venv/bin/python scripts/make_torch_vectors.py

Needed only to check where the numbers come from, or to add a case: its result is committed. One line
is a name, a count and the values; read by tests/support/vectors.h. Inputs stand beside the outputs,
so that no test repeats them. Everything runs on the CPU, and in float64 unless the name says float32.
"""

import math
import pathlib

import torch
from torch.nn import functional as F

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "vectors"


class Vectors:
    """The lines of one file."""

    def __init__(self, name, about):
        self.path = FOLDER / name
        self.lines = [
            f"# {about}",
            f"# Made by: python scripts/make_torch_vectors.py (torch {torch.__version__}, CPU)",
        ]

    def put(self, name, values):
        if isinstance(values, torch.Tensor):
            # Nine digits are enough to tell all float32 apart, seventeen for float64.
            digits = 9 if values.dtype == torch.float32 else 17
            values = values.detach().reshape(-1).tolist()
        else:
            digits, values = 17, list(values)
        text = " ".join(f"{v:.{digits}g}" for v in values)
        self.lines.append(f"{name} {len(values)} {text}".rstrip())

    def write(self):
        self.path.write_text("\n".join(self.lines) + "\n")
        print(f"{self.path.name}: {len(self.lines) - 2} vectors, {self.path.stat().st_size} bytes")


# --- Optimizers --------------------------------------------------------------------------------
# Eight parameters, each in its own noisy bowl. Element i of step t (1-based) has the gradient
#     g = curvature_i·(p_i − target_i) + 0.3·sin(0.1·t + i)
# computed in double from the parameter as it is stored, and rounded once to the parameter's dtype:
# so both programs hand their optimizers the same bits, and a difference is the optimizer's. No
# parameter comes near 0, where relative differences say nothing. The two short-memory Adams step so
# slowly that they stay under way: at a minimum they would circle it in a way that doubles every
# rounding error within a few steps, in float64 too.

PARAMETERS = 8
KEPT_STEPS = (1, 2, 10, 100, 1000)


def start(i):
    return 1.5 + 0.375 * i


def gradient(p, i, t):
    return (0.1 + 0.2 * i) * (p - (4.0 + 0.5 * i)) + 0.3 * math.sin(0.1 * t + i)


OPTIMIZERS = {
    "sgd_plain": (torch.optim.SGD, dict(lr=0.1)),
    "sgd_momentum": (torch.optim.SGD, dict(lr=0.05, momentum=0.9)),
    "sgd_dampening": (torch.optim.SGD, dict(lr=0.05, momentum=0.9, dampening=0.3)),
    "sgd_nesterov": (torch.optim.SGD, dict(lr=0.05, momentum=0.9, nesterov=True)),
    "sgd_weight_decay": (torch.optim.SGD, dict(lr=0.1, weight_decay=0.05)),
    "sgd_everything": (
        torch.optim.SGD,
        dict(lr=0.05, momentum=0.8, weight_decay=0.05, nesterov=True),
    ),
    "sgd_maximize": (
        torch.optim.SGD,
        dict(lr=0.05, momentum=0.9, weight_decay=0.05, maximize=True),
    ),
    "adam_default": (torch.optim.Adam, dict(lr=0.02)),
    "adam_weight_decay": (torch.optim.Adam, dict(lr=0.02, weight_decay=0.1)),
    "adam_amsgrad": (torch.optim.Adam, dict(lr=0.02, amsgrad=True)),
    "adam_betas_eps": (torch.optim.Adam, dict(lr=0.002, betas=(0.8, 0.95), eps=1e-4)),
    "adam_short_memory": (torch.optim.Adam, dict(lr=0.002, betas=(0.3, 0.4))),
    "adam_maximize": (torch.optim.Adam, dict(lr=0.02, weight_decay=0.1, maximize=True)),
    "adamw_default": (torch.optim.AdamW, dict(lr=0.02)),
    "adamw_weight_decay": (torch.optim.AdamW, dict(lr=0.02, weight_decay=0.1)),
    "adamw_amsgrad": (torch.optim.AdamW, dict(lr=0.02, amsgrad=True)),
    "adamw_maximize": (torch.optim.AdamW, dict(lr=0.02, weight_decay=0.1, maximize=True)),
}


def optimizers():
    out = Vectors("optimizers.txt", "Parameters after 1, 2, 10, 100 and 1000 steps.")
    for name, (optimizer_class, options) in OPTIMIZERS.items():
        for dtype, dtype_name in ((torch.float64, "float64"), (torch.float32, "float32")):
            p = torch.tensor([start(i) for i in range(PARAMETERS)], dtype=dtype)
            p.requires_grad_()
            # The plain loop over tensors, whose order of operations our formula follows.
            optimizer = optimizer_class([p], foreach=False, **options)
            sign = -1 if options.get("maximize") else 1  # going up the hill −f
            for t in range(1, max(KEPT_STEPS) + 1):
                g = [sign * gradient(v, i, t) for i, v in enumerate(p.tolist())]
                p.grad = torch.tensor(g, dtype=dtype)
                optimizer.step()
                if t in KEPT_STEPS:
                    out.put(f"{name}/{dtype_name}/{t}", p)
    out.write()


# --- Losses ------------------------------------------------------------------------------------


def record(out, name, loss, *inputs):
    """The value, and the gradients for an incoming gradient of 1, 2, 3, …"""
    out.put(f"{name}/value", loss)
    upstream = torch.arange(1, loss.numel() + 1, dtype=loss.dtype).reshape(loss.shape)
    grads = torch.autograd.grad(loss, inputs, upstream)
    for i, g in enumerate(grads):
        out.put(f"{name}/grad{i}", g)


def losses():
    out = Vectors("losses.txt", "Losses, and their gradients for an incoming gradient of 1, 2, 3, …")
    torch.manual_seed(1)
    logits = 2 * torch.randn(5, 4, dtype=torch.float64)
    classes = torch.tensor([2, 0, 3, 1, 2])
    weight = torch.tensor([0.5, 2.0, 1.25, 0.75], dtype=torch.float64)
    out.put("classes/logits", logits)
    out.put("classes/target", classes.tolist())
    out.put("classes/weight", weight)
    for reduction in ("none", "mean", "sum"):
        for weighted in (False, True):
            for ignored in (False, True):
                options = dict(
                    reduction=reduction,
                    weight=weight if weighted else None,
                    ignore_index=2 if ignored else -100,
                )
                suffix = f"{reduction}{'_weighted' if weighted else ''}{'_ignored' if ignored else ''}"
                x = logits.clone().requires_grad_()
                record(out, f"nll_loss/{suffix}", F.nll_loss(x, classes, **options), x)
                for smoothing, word in ((0.0, ""), (0.2, "_smoothed")):
                    loss = F.cross_entropy(x, classes, label_smoothing=smoothing, **options)
                    record(out, f"cross_entropy/{suffix}{word}", loss, x)
    x = logits[0].clone().requires_grad_()
    record(out, "cross_entropy/one_sample", F.cross_entropy(x, classes[0], weight=weight), x)
    x = torch.tensor([[1000.0, -1000.0, 0.0], [-1e5, -1e5, -1e5]], dtype=torch.float64)
    out.put("cross_entropy/extreme/input", x)
    x.requires_grad_()
    loss = F.cross_entropy(x, torch.tensor([1, 2]), reduction="none")
    record(out, "cross_entropy/extreme", loss, x)

    a = torch.randn(3, 4, dtype=torch.float64)
    b = torch.randn(3, 4, dtype=torch.float64)
    out.put("mse_loss/a", a)
    out.put("mse_loss/b", b)
    for reduction in ("none", "mean", "sum"):
        x, y = a.clone().requires_grad_(), b.clone().requires_grad_()
        record(out, f"mse_loss/{reduction}", F.mse_loss(x, y, reduction=reduction), x, y)

    # Binary: logits from comfortable to saturated; targets 0, 1 and between.
    z = torch.tensor([-1000, -40, -3, -0.5, 0, 0.25, 2, 35, 800, 1.5, -1.5, 6], dtype=torch.float64)
    z = z.reshape(3, 4)
    y = torch.tensor([0, 1, 0, 1, 0.5, 1, 0, 0, 1, 0.25, 0.9, 1], dtype=torch.float64).reshape(3, 4)
    w = torch.tensor([0.5, 2, 1, 0.25, 1.5, 0, 1, 3, 1, 0.75, 1, 2], dtype=torch.float64)
    w = w.reshape(3, 4)
    pos = torch.tensor([2, 0.5, 1, 4], dtype=torch.float64)
    p = torch.tensor([0.01, 0.2, 0.5, 0.7, 0.99, 0.35, 0.6, 0.05, 0.9, 0.45, 0.15, 0.8])
    p = p.to(torch.float64).reshape(3, 4)
    for name, v in (("z", z), ("y", y), ("w", w), ("pos", pos), ("p", p)):
        out.put(f"binary/{name}", v)
    for reduction in ("none", "mean", "sum"):
        for weighted, weight_word in ((None, ""), (w, "_weighted")):
            for positive, pos_word in ((None, ""), (pos, "_pos")):
                x = z.clone().requires_grad_()
                loss = F.binary_cross_entropy_with_logits(
                    x, y, weight=weighted, pos_weight=positive, reduction=reduction
                )
                record(out, f"bce_with_logits/{reduction}{weight_word}{pos_word}", loss, x)
            x = p.clone().requires_grad_()
            loss = F.binary_cross_entropy(x, y, weight=weighted, reduction=reduction)
            record(out, f"bce/{reduction}{weight_word}", loss, x)
    # Probabilities that a sigmoid rounded to 0 and 1, with the right, the wrong and an unsure target.
    x = torch.tensor([0, 1, 0, 1, 0, 1], dtype=torch.float64)
    t = torch.tensor([0, 1, 1, 0, 0.5, 0.5], dtype=torch.float64)
    out.put("bce/saturated/p", x)
    out.put("bce/saturated/y", t)
    x.requires_grad_()
    record(out, "bce/saturated", F.binary_cross_entropy(x, t, reduction="none"), x)
    out.write()


# --- Activations -------------------------------------------------------------------------------


def activations():
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


# --- Clipping ----------------------------------------------------------------------------------


def clipping():
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


# --- GradScaler --------------------------------------------------------------------------------

SCALERS = {
    # init_scale, growth_factor, backoff_factor, growth_interval, a bad step wherever a 1 stands
    "usual": (65536, 2, 0.5, 3, "0001000000010011000000000010100000000000"),
    "every_step": (1024, 1.5, 0.25, 1, "0010110000010000"),
    "odd_factors": (100, 1.37, 0.61, 2, "00001000010010000100100000000001"),
    "growth_to_the_limit": (1e38, 16, 0.5, 2, "000000010000000"),
    "far_below_one": (2.0**-100, 4, 0.125, 3, "0001000001100000"),
    "defaults_never_grow_early": (65536, 2, 0.5, 2000, "00000000001000000000"),
    "overflow_when_growth_is_due": (8, 2, 0.5, 4, "00010001000000010000"),
}


def scalers():
    out = Vectors("grad_scaler.txt", "Scale, growth tracker and parameter after every step.")
    for name, (init, growth, backoff, interval, events) in SCALERS.items():
        scaler = torch.amp.GradScaler("cpu", init, growth, backoff, interval)
        p = torch.tensor([1.0, -2.0], requires_grad=True)
        optimizer = torch.optim.SGD([p], lr=0.125, momentum=0.5)
        scales, trackers, params = [], [], []
        for event in events:
            optimizer.zero_grad()
            scaler.scale(p.sum()).backward()
            # The scaled gradient is put in by hand: a gradient of p itself at any scale, or an
            # infinity. In double and rounded once; bounded, so that scales near the limit do not
            # overflow by it.
            scale = scaler.get_scale()
            p.grad = (p.detach().double() * min(scale, 1e37)).float()
            if event == "1":
                p.grad[1] = math.inf
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
            trackers.append(scaler._get_growth_tracker())
            params.append(p.detach().clone())
        out.put(f"{name}/options", [init, growth, backoff, interval])
        out.put(f"{name}/found_inf", [int(e) for e in events])
        out.put(f"{name}/scale", scales)
        out.put(f"{name}/growth_tracker", trackers)
        out.put(f"{name}/parameter", torch.stack(params))
    out.write()


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    optimizers()
    losses()
    activations()
    clipping()
    scalers()
