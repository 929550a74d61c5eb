"""Scales that torch.amp.GradScaler takes."""

import math

import torch

from .vectors import Vectors

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


def make():
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
