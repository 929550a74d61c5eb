"""Parameters after 1, 2, 10, 100 and 1000 steps.

Eight parameters, each in its own noisy bowl. Element i of step t (1-based) has the gradient
    g = curvature_i·(p_i − target_i) + 0.3·sin(0.1·t + i)
computed in double from the parameter as it is stored, and rounded once to the parameter's dtype:
so both programs hand their optimizers the same bits, and a difference is the optimizer's. No
parameter comes near 0, where relative differences say nothing. The two short-memory Adams and RMSprop
step so slowly that they stay under way: at a minimum they would circle it in a way that doubles every
rounding error within a few steps, in float64 too.
"""

import math

import torch

from .vectors import Vectors

PARAMETERS = 8
KEPT_STEPS = (1, 2, 10, 100, 1000)


def start(i):
    return 1.5 + 0.375 * i


def gradient(p, i, t):
    return (0.1 + 0.2 * i) * (p - (4.0 + 0.5 * i)) + 0.3 * math.sin(0.1 * t + i)


class Lion:
    """torch has none: algorithm 2 of Chen et al. 2023, arXiv:2302.06675, with weight decay first."""

    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0.0, maximize=False, foreach=False):
        (self.p,) = params
        self.lr, self.betas, self.weight_decay, self.maximize = lr, betas, weight_decay, maximize
        self.exp_avg = torch.zeros_like(self.p)

    @torch.no_grad()
    def step(self):
        g = -self.p.grad if self.maximize else self.p.grad
        beta1, beta2 = self.betas
        self.p.mul_(1 - self.lr * self.weight_decay)
        self.p.sub_(torch.sign(self.exp_avg * beta1 + g * (1 - beta1)) * self.lr)
        self.exp_avg = self.exp_avg * beta2 + g * (1 - beta2)


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
    "rmsprop_default": (torch.optim.RMSprop, dict(lr=0.002)),
    "rmsprop_momentum": (torch.optim.RMSprop, dict(lr=0.0002, alpha=0.9, momentum=0.9)),
    "rmsprop_centered": (torch.optim.RMSprop, dict(lr=0.0002, eps=1e-4, centered=True)),
    "rmsprop_everything": (
        torch.optim.RMSprop,
        dict(lr=0.0001, alpha=0.95, momentum=0.5, weight_decay=0.05, centered=True),
    ),
    "rmsprop_maximize": (torch.optim.RMSprop, dict(lr=0.002, weight_decay=0.05, maximize=True)),
    "adagrad_default": (torch.optim.Adagrad, dict(lr=0.1)),
    "adagrad_decay": (torch.optim.Adagrad, dict(lr=0.1, lr_decay=0.01, weight_decay=0.05)),
    "adagrad_accumulator": (
        torch.optim.Adagrad,
        dict(lr=0.1, initial_accumulator_value=0.5, eps=1e-4),
    ),
    "adagrad_maximize": (torch.optim.Adagrad, dict(lr=0.1, weight_decay=0.05, maximize=True)),
    "lion_default": (Lion, dict(lr=0.005)),
    "lion_weight_decay": (Lion, dict(lr=0.005, betas=(0.8, 0.95), weight_decay=0.1)),
    "lion_maximize": (Lion, dict(lr=0.005, weight_decay=0.1, maximize=True)),
}


def make():
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
