"""Images through grids of points, and gradients."""

import itertools

import torch
from torch.nn import functional as F

from .vectors import Vectors, record


def make():
    out = Vectors("grids.txt", "grid_sample() and affine_grid(), with gradients for 1, 2, 3, …")
    torch.manual_seed(7)
    x = torch.randint(-40, 41, (2, 2, 3, 4)).to(torch.float64) / 16
    # Inside, at the edges' far side, and far outside; no ties between neighbours.
    grid = torch.randint(-100, 101, (2, 2, 5, 2)).to(torch.float64) / 64 + 1 / 512
    out.put("x", x)
    out.put("grid", grid)
    for mode, padding, corners in itertools.product(
        ("bilinear", "nearest"), ("zeros", "border", "reflection"), (False, True)
    ):
        a, b = x.clone().requires_grad_(), grid.clone().requires_grad_()
        y = F.grid_sample(a, b, mode, padding, corners)
        record(out, f"{mode}/{padding}/{int(corners)}", y, a, b)
    volume = torch.randint(-40, 41, (1, 2, 3, 2, 4)).to(torch.float64) / 16
    grid = torch.randint(-100, 101, (1, 2, 2, 3, 3)).to(torch.float64) / 64 + 1 / 512
    out.put("volume", volume)
    out.put("volume_grid", grid)
    for mode, padding, corners in itertools.product(
        ("bilinear", "nearest"), ("zeros", "border", "reflection"), (False, True)
    ):
        a, b = volume.clone().requires_grad_(), grid.clone().requires_grad_()
        y = F.grid_sample(a, b, mode, padding, corners)
        record(out, f"volume/{mode}/{padding}/{int(corners)}", y, a, b)
    theta = torch.tensor([[[0.5, -0.25, 0.125], [0.25, 1.5, -1]]], dtype=torch.float64)
    out.put("theta", theta)
    theta3 = torch.tensor([[[0.5, -0.25, 0.75, 0.125], [0.25, 1.5, 0.5, -1], [-0.5, 1, 0.25, 2]]], dtype=torch.float64)
    out.put("theta3", theta3)
    for corners in (False, True):
        t = theta.clone().requires_grad_()
        record(out, f"affine/{int(corners)}", F.affine_grid(t, (1, 1, 3, 4), corners), t)
        t = theta3.clone().requires_grad_()
        record(out, f"affine/{int(corners)}/volume", F.affine_grid(t, (1, 1, 2, 3, 4), corners), t)
    out.write()
