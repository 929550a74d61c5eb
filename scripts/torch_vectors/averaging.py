"""Averages of a model's weights and buffers over ten updates."""

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from .vectors import Vectors

UPDATES = 10


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(2, 3, dtype=torch.float64))
        self.bias = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(3, dtype=torch.float64))

    def set(self, t):
        with torch.no_grad():
            for k, tensor in enumerate((self.weight, self.bias, self.mean)):
                i = torch.arange(tensor.numel(), dtype=torch.float64)
                tensor.copy_(torch.sin(0.3 * t + i + k).reshape(tensor.shape))


def make():
    out = Vectors("averaging.txt", "Averages of a model's weights and buffers over ten updates.")
    for name, options in {
        "swa": dict(),
        "swa_buffers": dict(use_buffers=True),
        "ema": dict(multi_avg_fn=get_ema_multi_avg_fn(0.9)),
        "ema_buffers": dict(multi_avg_fn=get_ema_multi_avg_fn(0.3), use_buffers=True),
    }.items():
        model = Model()
        averaged = AveragedModel(model, **options)
        for t in range(UPDATES):
            model.set(t)
            averaged.update_parameters(model)
            m = averaged.module
            out.put(f"{name}/{t}", torch.cat([m.weight.reshape(-1), m.bias, m.mean]))
    out.write()
