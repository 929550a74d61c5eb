"""Losses and their gradients."""

import torch
from torch.nn import functional as F

from .vectors import Vectors, record


def make():
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
