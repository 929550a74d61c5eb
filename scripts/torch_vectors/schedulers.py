"""Learning rates of 200 epochs, for two parameter groups of rates 0.05 and 0.4.

Epochs 0 to 20 and every tenth after them are kept, each a pair of rates. Two schedules of one
optimizer show how they share it.
"""

import math

import torch
from torch.optim import lr_scheduler as lrs
from torch.optim.swa_utils import SWALR

from .vectors import Vectors

EPOCHS = 200
RATES = (0.05, 0.4)


def kept(epoch):
    return epoch <= 20 or epoch % 10 == 0


def metric(epoch):
    """Falls, stands still, falls again: what a plateau is for."""
    return 1 / (1 + min(epoch, 20)) + (0.3 * math.sin(epoch) if 60 < epoch < 120 else 0)


def nanogpt(warmup, decay, min_lr, rate):
    def factor(epoch):
        if epoch < warmup:
            return (epoch + 1) / (warmup + 1)
        if epoch > decay:
            return min_lr / rate
        done = (epoch - warmup) / (decay - warmup)
        return (min_lr + 0.5 * (1 + math.cos(math.pi * done)) * (rate - min_lr)) / rate

    return factor


SCHEDULES = {
    "step": lambda o: lrs.StepLR(o, 7, 0.9),
    "multi_step": lambda o: lrs.MultiStepLR(o, [3, 20, 20, 90], 0.5),
    "exponential": lambda o: lrs.ExponentialLR(o, 0.97),
    "constant": lambda o: lrs.ConstantLR(o, 0.3, 12),
    "linear": lambda o: lrs.LinearLR(o, 0.01, 0.8, 25),
    "polynomial": lambda o: lrs.PolynomialLR(o, 120, 1.7),
    "lambda": lambda o: lrs.LambdaLR(o, [lambda e: 1 / (1 + e), lambda e: 0.95**e]),
    "multiplicative": lambda o: lrs.MultiplicativeLR(o, lambda e: 1 - 0.5 / (1 + e)),
    "cosine": lambda o: lrs.CosineAnnealingLR(o, 40, 0.001),
    "cosine_once": lambda o: lrs.CosineAnnealingLR(o, 200),
    "warm_restarts": lambda o: lrs.CosineAnnealingWarmRestarts(o, 10, 1, 0.001),
    "warm_restarts_growing": lambda o: lrs.CosineAnnealingWarmRestarts(o, 6, 2, 0.001),
    "swa": lambda o: SWALR(o, [0.01, 0.02], 15),
    "swa_linear": lambda o: SWALR(o, 0.03, 8, "linear"),
    "swa_at_once": lambda o: SWALR(o, 0.03, 0),
    "nanogpt": lambda o: lrs.LambdaLR(o, [nanogpt(12, 150, 0.004, r) for r in RATES]),
    "warmup_cosine": lambda o: lrs.SequentialLR(
        o, [lrs.LinearLR(o, 0.01, 1, 20), lrs.CosineAnnealingLR(o, 160, 0.001)], [20]
    ),
    "sequential": lambda o: lrs.SequentialLR(
        o,
        [
            lrs.ConstantLR(o, 0.1, 5),
            lrs.ExponentialLR(o, 0.9),
            lrs.CosineAnnealingWarmRestarts(o, 9, 2),
            lrs.StepLR(o, 4, 0.5),
        ],
        [8, 26, 100],
    ),
    "sequential_others": lambda o: lrs.SequentialLR(
        o,
        [
            lrs.PolynomialLR(o, 30),
            lrs.MultiStepLR(o, [2, 4], 0.1),
            lrs.LambdaLR(o, lambda e: 1 / (2 + e)),
            lrs.LinearLR(o, 0.2),
        ],
        [10, 20, 50],
    ),
    "chained": lambda o: lrs.ChainedScheduler(
        [lrs.ConstantLR(o, 0.1, 20), lrs.ExponentialLR(o, 0.9), lrs.StepLR(o, 11, 2.0)]
    ),
}

ONE_CYCLES = {
    "one_cycle": dict(max_lr=[0.2, 0.8]),
    "one_cycle_linear": dict(max_lr=0.2, anneal_strategy="linear", pct_start=0.4),
    "one_cycle_three_phase": dict(max_lr=0.2, three_phase=True, base_momentum=0.8, max_momentum=0.9),
    "one_cycle_divided": dict(max_lr=0.2, div_factor=10.0, final_div_factor=50.0),
}

PLATEAUS = {
    "plateau": dict(patience=4),
    "plateau_max": dict(mode="max", patience=6, factor=0.5, min_lr=[0.001, 0.1]),
    "plateau_abs": dict(threshold_mode="abs", threshold=0.01, patience=3, cooldown=5, factor=0.7),
}


def groups(momentum=0.0, optimizer=torch.optim.SGD, **options):
    params = [{"params": [torch.zeros(1, dtype=torch.float64)], "lr": r} for r in RATES]
    if optimizer is torch.optim.SGD:
        options["momentum"] = momentum
    return optimizer(params, lr=1.0, **options)


def run(out, name, optimizer, step, value=lambda group: group["lr"]):
    values = []
    for epoch in range(EPOCHS + 1):
        if kept(epoch):
            values += [value(group) for group in optimizer.param_groups]
        if epoch < EPOCHS:
            optimizer.step()
            step(epoch)
    out.put(name, values)


def make():
    out = Vectors("schedulers.txt", "Learning rates of 200 epochs, for groups of 0.05 and 0.4.")
    for name, schedule in SCHEDULES.items():
        optimizer = groups()
        made = schedule(optimizer)
        run(out, name, optimizer, lambda _, s=made: s.step())
    for name, options in ONE_CYCLES.items():
        for what, value in (
            ("lr", lambda group: group["lr"]),
            ("momentum", lambda group: group["momentum"]),
        ):
            optimizer = groups(momentum=0.5)
            made = lrs.OneCycleLR(optimizer, total_steps=EPOCHS, **options)
            run(out, f"{name}/{what}", optimizer, lambda _, s=made: s.step(), value)
    optimizer = groups(optimizer=torch.optim.Adam)
    made = lrs.OneCycleLR(optimizer, 0.2, EPOCHS)
    run(out, "one_cycle/beta1", optimizer, lambda _: made.step(), lambda g: g["betas"][0])
    for name, options in PLATEAUS.items():
        optimizer = groups()
        made = lrs.ReduceLROnPlateau(optimizer, **options)
        run(out, name, optimizer, lambda epoch, s=made: s.step(metric(epoch)))
    # Fractions of an epoch.
    optimizer = groups()
    restarts = lrs.CosineAnnealingWarmRestarts(optimizer, 6, 2, 0.001)
    run(out, "warm_restarts_fractions", optimizer, lambda e: restarts.step(0.3 * (e + 1)))
    # A warm-up by one schedule on top of another one.
    optimizer = groups()
    both = lrs.LinearLR(optimizer, 0.1, 1, 10), lrs.CosineAnnealingLR(optimizer, 100, 0.001)
    run(out, "two_at_once", optimizer, lambda _: [s.step() for s in both])
    out.write()
