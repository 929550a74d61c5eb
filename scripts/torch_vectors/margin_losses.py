"""Losses of margins and distances, with every option, and their gradients."""

import functools

import torch
from torch.nn import functional as F

from .vectors import Vectors, record_reductions

f64 = dict(dtype=torch.float64)


def make():
    out = Vectors(
        "margin_losses.txt", "Losses, and their gradients for an incoming gradient of 1, 2, 3, …"
    )
    torch.manual_seed(5)
    put = out.put
    each = functools.partial(record_reductions, out)

    x = put("sign/x", torch.tensor([-2, -0.3, 0, 0.4, 1, 1.7, 0.5, 3], **f64))
    y = put("sign/y", torch.tensor([1, -1, 1, -1, -1, 1, -1, -1], **f64))
    other = put("sign/other", torch.tensor([0.5, 0.2, 0, 1, 1.4, 0.7, 0.5, -1], **f64))
    for margin in (1.0, 0.5):
        each(f"hinge_embedding_loss/{margin}",
             lambda x, reduction: F.hinge_embedding_loss(x, y, margin=margin, reduction=reduction),
             x)
    each("soft_margin_loss", lambda x, reduction: F.soft_margin_loss(x, y, reduction=reduction), x)
    for margin in (0.0, 0.4):
        call = lambda a, b, reduction: F.margin_ranking_loss(a, b, y, margin=margin, reduction=reduction)
        each(f"margin_ranking_loss/{margin}", call, x, other)

    u, v = (put(f"vectors/{n}", torch.randn(4, 3, **f64)) for n in "uv")
    w = put("vectors/w", torch.randn(4, 3, **f64))
    sign = put("vectors/sign", torch.tensor([1, -1, -1, 1], **f64))
    for margin in (0.0, 0.3):
        call = lambda a, b, reduction: F.cosine_embedding_loss(a, b, sign, margin=margin, reduction=reduction)
        each(f"cosine_embedding_loss/{margin}", call, u, v)
    one = lambda a, b, reduction: F.cosine_embedding_loss(a, b, sign[0], reduction=reduction)
    each("cosine_embedding_loss/one", one, u[0], v[0])
    for p in (1.0, 2.0, 3.0):
        for swap in (False, True):
            for margin, eps in ((1.0, 1e-6), (0.2, 0.01)):
                call = lambda a, b, c, reduction: F.triplet_margin_loss(
                    a, b, c, margin=margin, p=p, eps=eps, swap=swap, reduction=reduction)
                each(f"triplet_margin_loss/{p}_{int(swap)}_{margin}", call, u, v, w,
                     reductions=("none", "mean", "sum") if p == 2 else ("none",))
    for swap in (False, True):
        for name, distance in (("default", None), ("squared", lambda a, b: (a - b).square().sum(-1))):
            call = lambda a, b, c, reduction: F.triplet_margin_with_distance_loss(
                a, b, c, distance_function=distance, margin=0.7, swap=swap, reduction=reduction)
            each(f"triplet_margin_with_distance_loss/{name}_{int(swap)}", call, u, v, w)

    x = put("classes/x", torch.randn(4, 5, **f64))
    t = torch.tensor([3, 0, 4, 1])
    out.put("classes/target", t.tolist())
    weight = put("classes/weight", torch.rand(5, **f64) + 0.5)
    for p in (1, 2):
        for margin in (1.0, 0.3):
            for weights, word in ((None, ""), (weight, "_weighted")):
                call = lambda x, reduction: F.multi_margin_loss(
                    x, t, p=p, margin=margin, weight=weights, reduction=reduction)
                each(f"multi_margin_loss/{p}_{margin}{word}", call, x)
    one = lambda x, reduction: F.multi_margin_loss(x, t[0], reduction=reduction)
    each("multi_margin_loss/one", one, x[0])
    labels = torch.tensor([[3, 0, -1, 1, 1], [-1, 2, 2, 2, 2], [4, 3, 2, 1, 0], [2, 2, -1, 0, 0]])
    out.put("labels/target", labels.reshape(-1).tolist())
    call = lambda x, reduction: F.multilabel_margin_loss(x, labels, reduction=reduction)
    each("multilabel_margin_loss", call, x)
    one = lambda x, reduction: F.multilabel_margin_loss(x, labels[0], reduction=reduction)
    each("multilabel_margin_loss/one", one, x[0])
    y = put("labels/y", torch.tensor([0, 1, 1, 0, 0.5], **f64).repeat(4))
    for weights, word in ((None, "plain"), (weight, "weighted")):
        call = lambda x, reduction: F.multilabel_soft_margin_loss(
            x, y.reshape(4, 5), weight=weights, reduction=reduction)
        each(f"multilabel_soft_margin_loss/{word}", call, x)
    out.write()
