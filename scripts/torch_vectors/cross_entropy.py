"""Losses of classes at many places of a sample, and of the probabilities of all classes."""

import torch
from torch.nn import functional as F

from .vectors import Vectors, record


def make():
    out = Vectors(
        "cross_entropy.txt", "Losses, and their gradients for an incoming gradient of 1, 2, 3, …"
    )
    torch.manual_seed(4)
    weight = torch.tensor([0.5, 2.0, 1.25, 0.75], dtype=torch.float64)
    out.put("weight", weight)
    for name, shape in (("line", (3, 4, 2)), ("image", (2, 4, 2, 3))):
        logits = 2 * torch.randn(shape, dtype=torch.float64)
        classes = torch.randint(0, 4, (shape[0], *shape[2:]))
        classes.reshape(-1)[1] = 2
        out.put(f"{name}/logits", logits)
        out.put(f"{name}/target", classes.reshape(-1).tolist())
        for reduction in ("none", "mean", "sum"):
            for weighted in (False, True):
                options = dict(
                    reduction=reduction, weight=weight if weighted else None, ignore_index=2
                )
                suffix = f"{name}_{reduction}{'_weighted' if weighted else ''}"
                x = logits.clone().requires_grad_()
                record(out, f"nll_loss/{suffix}", F.nll_loss(x, classes, **options), x)
                for smoothing, word in ((0.0, ""), (0.2, "_smoothed")):
                    loss = F.cross_entropy(x, classes, label_smoothing=smoothing, **options)
                    record(out, f"cross_entropy/{suffix}{word}", loss, x)
    for name, shape in (("one", (4,)), ("some", (3, 4)), ("places", (2, 4, 3))):
        dim = 0 if name == "one" else 1
        logits = 2 * torch.randn(shape, dtype=torch.float64)
        p = torch.randn(shape, dtype=torch.float64).softmax(dim)
        out.put(f"{name}/logits", logits)
        out.put(f"{name}/p", p)
        for reduction in ("none", "mean", "sum"):
            for weighted in (False, True):
                for smoothing, word in ((0.0, ""), (0.2, "_smoothed")):
                    x, y = logits.clone().requires_grad_(), p.clone().requires_grad_()
                    loss = F.cross_entropy(
                        x, y, weight=weight if weighted else None, reduction=reduction,
                        label_smoothing=smoothing,
                    )
                    suffix = f"{name}_{reduction}{'_weighted' if weighted else ''}{word}"
                    record(out, f"probabilities/{suffix}", loss, x, y)
    out.write()
