#!/usr/bin/env python3
"""PyTorch's side of bench_train_step: the same workloads, as lines of JSON.

usage: benchmarks/train_step_torch.py [--device cuda|cpu] [--dtype float16|bfloat16] [--only a128,a1024,b,c,d,e]
                                      [--configs eager,fused,graph,cgraph] [--seconds S]

eager    AdamW (foreach), GradScaler
fused    AdamW(fused=True)
graph    the whole step, with a capturable fused AdamW, in one CUDA graph
cgraph   the same of a model compiled with max-autotune-no-cudagraphs: the strongest baseline

Attention is scaled_dot_product_attention, and pictures lie channels_last, as PyTorch recommends.
"""
import argparse
import json
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

WORKLOADS = {  # widths, batch, with classes?
    "a128": ([784, 256, 256, 10], 128, True),
    "a1024": ([784, 256, 256, 10], 1024, True),
    "b": ([64] * 5 + [16], 1 << 18, False),
    "c": ([4096] * 5, 8192, False),
    "d": ("gpt", 64, True),
    "e": ("resnet", 512, True),
}
BLOCKS = 15
SYMBOLS, CONTEXT, WIDTH, HEADS, LAYERS, DROPOUT = 65, 256, 384, 6, 6, 0.2


def mlp(widths):
    layers = []
    for i, (a, b) in enumerate(zip(widths, widths[1:])):
        layers.append(nn.Linear(a, b))
        if i + 2 < len(widths):
            layers.append(nn.ReLU())
    return nn.Sequential(*layers)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH, bias=False), nn.LayerNorm(WIDTH, bias=False)
        self.attention, self.projection = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        q, k, v = (t.unflatten(2, (HEADS, -1)).transpose(1, 2) for t in self.attention(self.ln_1(x)).split(WIDTH, 2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=DROPOUT).transpose(1, 2).flatten(2)
        x = x + F.dropout(self.projection(mixed), DROPOUT)
        return x + F.dropout(self.down(F.gelu(self.up(self.ln_2(x)))), DROPOUT)


class GPT(nn.Module):
    """That of samples/char_gpt: the embedding is also the output layer."""

    def __init__(self):
        super().__init__()
        self.symbols, self.places = nn.Embedding(SYMBOLS, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.last = nn.LayerNorm(WIDTH, bias=False)

    def forward(self, text):
        x = F.dropout(self.symbols(text) + self.places.weight, DROPOUT)
        return F.linear(self.last(self.blocks(x)), self.symbols.weight).flatten(0, 1)


def convolution(a, b, *more):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(), *more)


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


def resnet9():
    def halve():
        return nn.MaxPool2d(2)
    return nn.Sequential(convolution(3, 64), convolution(64, 128, halve()), Residual(convolution(128, 128), convolution(128, 128)),
                         convolution(128, 256, halve()), convolution(256, 512, halve()),
                         Residual(convolution(512, 512), convolution(512, 512)), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(512, 10))


def training(name, config, dtype, device):
    """A step, and whether it is to be captured."""
    torch.manual_seed(0)
    widths, batch, classes = WORKLOADS[name]
    captured = config in ("graph", "cgraph")
    options = {"fused": True, "capturable": captured} if config != "eager" and device == "cuda" else {}
    lr = torch.tensor(1e-3, device=device) if captured else 1e-3
    if widths == "gpt":
        model = GPT().to(device)
        x, y = (torch.randint(0, SYMBOLS, (batch, CONTEXT), device=device) for _ in range(2))
        y = y.flatten()
        groups = [{"params": [p for p in model.parameters() if p.dim() == d], "weight_decay": w} for d, w in ((2, 0.1), (1, 0.0))]
        optimizer = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.99), **options)
    elif widths == "resnet":
        model = resnet9().to(device, memory_format=torch.channels_last)
        x = torch.randn(batch, 3, 32, 32, device=device).to(memory_format=torch.channels_last)
        y = torch.randint(0, 10, (batch,), device=device)
        options.pop("capturable", None)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, **options)
    else:
        model = mlp(widths).to(device)
        x = torch.randn(batch, widths[0], device=device)
        y = torch.randint(0, widths[-1], (batch,), device=device) if classes else \
            torch.randn(batch, widths[-1], device=device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.99), weight_decay=0.0, **options)
    scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)
    forward = torch.compile(model, mode="max-autotune-no-cudagraphs", fullgraph=True, dynamic=False) \
        if config == "cgraph" else model

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=dtype):
            out = forward(x)
            loss = F.cross_entropy(out, y) if classes else F.mse_loss(out, y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    if captured:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(11):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            step()
        return graph.replay
    return step


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def measure(step, device, seconds):
    """Microseconds of a step in each of 15 blocks, in rising order; steps in a block."""
    for _ in range(5):
        step()
    wait(device)
    start = time.perf_counter()
    for _ in range(5):
        step()
    wait(device)
    n = max(3, int(seconds / BLOCKS / ((time.perf_counter() - start) / 5)))
    times = []
    for _ in range(BLOCKS):
        if device == "cuda":
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(n):
                step()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3 / n)
        else:
            start = time.perf_counter()
            for _ in range(n):
                step()
            times.append((time.perf_counter() - start) * 1e6 / n)
    return sorted(times), n


def kernels(step):
    """Kernels of a step, and microseconds for which the GPU works on them."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    events = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    return {"kernels": len(events), "gpu_us": round(sum(e.device_time_total for e in events), 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--dtype", default="float16", choices=["float16", "bfloat16"])
    parser.add_argument("--only", default=",".join(WORKLOADS))
    parser.add_argument("--configs", default="eager,fused,graph,cgraph")
    parser.add_argument("--seconds", type=float, default=1.0)
    o = parser.parse_args()
    failed = False
    for name in o.only.split(","):
        for config in o.configs.split(","):
            line = {"lib": "torch", "version": torch.__version__, "workload": name, "config": config,
                    "dtype": o.dtype, "batch": WORKLOADS[name][1]}
            try:
                step = training(name, config, getattr(torch, o.dtype), o.device)
                times, n = measure(step, o.device, o.seconds)
                line |= {"us_median": round(times[BLOCKS // 2], 2), "us_min": round(times[0], 2),
                         "us_max": round(times[-1], 2), "steps_per_block": n}
                if config == "eager" and o.device == "cuda":
                    line |= kernels(step)
            except Exception as e:  # a configuration that this PyTorch cannot run; the others count
                line["error"] = f"{type(e).__name__}: {e}"[:300]
                failed = True
            print(json.dumps(line), flush=True)
            if config == "cgraph":
                torch._dynamo.reset()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
