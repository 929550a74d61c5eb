"""The steps of data_parallel_step.cpp by torch's DistributedDataParallel over Gloo. Run by compare_ddp."""
import os
import time

import torch
import torch.distributed as dist
from torch import nn


def timed(name, warm, repeats, f):
    for _ in range(warm):
        f()
    ms = []
    for _ in range(repeats):
        dist.barrier()
        begin = time.perf_counter()
        f()
        ms.append((time.perf_counter() - begin) * 1e3)
    ms.sort()
    if dist.get_rank() == 0:
        print(name, f"{ms[0]:.4f} {ms[len(ms) // 2]:.4f}", flush=True)


def mlp(name, widths, batch, repeats):
    torch.manual_seed(1)
    layers = []
    for i in range(len(widths) - 1):
        layers += ([nn.ReLU()] if i else []) + [nn.Linear(widths[i], widths[i + 1])]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    own = batch // dist.get_world_size()
    x, y = torch.randn(own, widths[0]), torch.randint(widths[-1], (own,))

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    timed(name, 3, repeats, step)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for n in (1, 10000, 1000000, 10000000):
        x = torch.zeros(n)
        timed(f"ring_{4 * n}", 3, 15 if n > 100000 else 100, lambda: dist.all_reduce(x))
    mlp("mlp_b", [784, 256, 256, 10], 128, 100)
    mlp("mlp_c", [1024] * 5, 512, 12)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
