"""Losses of elements, with every option, and their gradients."""

import functools

import torch
from torch.nn import functional as F

from .vectors import Vectors, record, record_reductions

REDUCTIONS = ("none", "mean", "sum")
f64 = dict(dtype=torch.float64)


def make():
    out = Vectors(
        "more_losses.txt", "Losses, and their gradients for an incoming gradient of 1, 2, 3, …"
    )
    torch.manual_seed(3)
    put = out.put
    each = functools.partial(record_reductions, out)

    # Differences on both sides of every bound, and one of 0.
    a = put("elements/x", torch.tensor([-3, -1.2, -0.5, -0.1, 0.3, 0.3, 0.8, 1.5, 2, 40], **f64))
    b = put("elements/y", torch.tensor([0.5, -1, 0.7, -0.3, 0.3, 0.1, -1, 1.2, -1, 2], **f64))
    each("l1_loss", F.l1_loss, a, b)
    for beta in (0.0, 0.3, 1.0, 2.5):
        each(f"smooth_l1_loss/{beta}",
             lambda x, y, reduction: F.smooth_l1_loss(x, y, reduction=reduction, beta=beta), a, b)
    for delta in (0.3, 1.0, 2.5):
        each(f"huber_loss/{delta}",
             lambda x, y, reduction: F.huber_loss(x, y, reduction=reduction, delta=delta), a, b)

    log_p = put("kl_div/x", torch.randn(3, 4, **f64).log_softmax(1))
    q = put("kl_div/y", torch.randn(3, 4, **f64).softmax(1))
    for log_target in (False, True):
        each(f"kl_div/{'log' if log_target else 'plain'}",
             lambda x, y, reduction: F.kl_div(x, y, reduction=reduction, log_target=log_target),
             log_p, q.log() if log_target else q, reductions=REDUCTIONS + ("batchmean",))
    zero = q.clone()
    zero[0, 1] = 0
    x = log_p.clone().requires_grad_()
    record(out, "kl_div/zero", F.kl_div(x, zero, reduction="none"), x)

    x = put("poisson/x", torch.tensor([0.2, 1.5, 0.01, 3, 0.7, 2.2], **f64))
    y = put("poisson/y", torch.tensor([0, 1, 2, 5, 0.5, 1.5], **f64))
    for log_input in (True, False):
        for full in (False, True):
            for eps in (1e-8, 0.1):
                call = lambda x, reduction: F.poisson_nll_loss(
                    x, y, log_input=log_input, full=full, eps=eps, reduction=reduction)
                each(f"poisson_nll_loss/{int(log_input)}{int(full)}_{eps}", call, x)

    x = put("gaussian/x", torch.randn(3, 4, **f64))
    y = put("gaussian/y", torch.randn(3, 4, **f64))
    whole = torch.rand(3, 4, **f64) + 0.1
    whole[1, 2] = 1e-3  # below the second eps
    put("gaussian/var", whole)
    row = put("gaussian/row", torch.rand(3, **f64) + 0.1)
    for name, var in (("whole", whole), ("row", row), ("column", row[:, None])):
        for full in (False, True):
            for eps in (1e-6, 0.01):
                call = lambda x, y, v, reduction: F.gaussian_nll_loss(
                    x, y, v, full=full, eps=eps, reduction=reduction)
                each(f"gaussian_nll_loss/{name}{int(full)}_{eps}", call, x, y, var,
                     reductions=("none",) if name != "whole" else REDUCTIONS)
    out.write()
