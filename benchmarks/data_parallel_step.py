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


CONTEXT, SYMBOLS, HEADS, WIDTH = 64, 65, 4, 128


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.projection = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.register_buffer("future", torch.triu(torch.ones(CONTEXT, CONTEXT), 1).bool())

    def attend(self, x):
        q, k, v = (t.reshape(t.size(0), CONTEXT, HEADS, WIDTH // HEADS).transpose(1, 2) for t in self.attention(x).chunk(3, 2))
        scores = q @ k.transpose(-2, -1) * (WIDTH // HEADS) ** -0.5
        mixed = torch.softmax(scores.masked_fill(self.future, -1e9), -1) @ v
        return self.projection(mixed.transpose(1, 2).reshape(x.shape))

    def forward(self, x):
        y = x + self.attend(self.ln_1(x))
        return y + self.down(nn.functional.gelu(self.up(self.ln_2(y))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.symbols, self.positions = nn.Embedding(SYMBOLS, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(4)))
        self.last, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, SYMBOLS, bias=False)

    def forward(self, text):
        return self.head(self.last(self.blocks(self.symbols(text) + self.positions(torch.arange(CONTEXT)))))


def char_gpt(name, batch, repeats):
    torch.manual_seed(1)
    model = nn.parallel.DistributedDataParallel(Gpt(), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    own = (batch // dist.get_world_size(), CONTEXT)
    text, following = torch.randint(SYMBOLS, own), torch.randint(SYMBOLS, own)

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(text).reshape(-1, SYMBOLS), following.reshape(-1)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    timed(name, 3, repeats, step)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for n in (1, 10000, 1000000, 10000000):
        x = torch.zeros(n)
        timed(f"ring_{4 * n}", 3, 15 if n > 1000000 else 100, lambda: dist.all_reduce(x))
    mlp("mlp_b", [784, 256, 256, 10], 128, 100)
    mlp("mlp_c", [1024] * 5, 512, 12)
    char_gpt("char_gpt", 12, 25)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
