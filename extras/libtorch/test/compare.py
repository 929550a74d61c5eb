#!/usr/bin/env python3
"""amp.h against Python's torch.amp, bit for bit.

    compare.py PROGRAM [--series 3000] [--seed 0] [--train bfloat16 float16]

PROGRAM is amp_programs.cpp, built; `run` does that. Random series of steps go through both scalers: scale, growth
tracker and both weights must be equal after each. With --train both also train one MLP under autocast: losses, scales and
final weights must be equal. Needs torch 2.3 or later. Exit code 1 at the first difference.
"""
import argparse
import random
import subprocess
import sys

import torch


def cases(count, seed):
    """Scales stay above 2^-100: below 2^-126 the two differ on purpose."""
    draw = random.Random(seed)
    for _ in range(count):
        init = 2.0 ** draw.choice([4, 15, 16, 24, 60, 100, 126, 127])
        if draw.random() < 0.2:
            init *= draw.choice([0.75, 1.5, 1.9])
        growth = draw.choice([2.0, 2.0, 2.0, 1.5, 4.0, 1.001])
        backoff = draw.choice([0.5, 0.5, 0.5, 0.25, 0.75, 0.9])
        interval = draw.choice([1, 1, 2, 3, 5, 8, 13, 2000])
        often = draw.choice([0.02, 0.1, 0.3, 0.7])
        yield init, growth, backoff, interval, "".join(
            draw.choice("imnus") if draw.random() < often else "." for _ in range(draw.randint(1, 40))
        )


def trace(init, growth, backoff, interval, events):
    scaler = torch.amp.GradScaler("cpu", init, growth, backoff, interval)
    a, b = torch.zeros(2, requires_grad=True), torch.zeros(3, requires_grad=True)
    first, second = torch.optim.SGD([a], 1.0), torch.optim.SGD([b], 1.0)
    for event in events:
        first.zero_grad(), second.zero_grad()
        scaler.scale((a * 0).sum() + (b * 0).sum()).backward()
        a.grad.fill_(scaler.get_scale())
        b.grad.fill_(scaler.get_scale())
        if event == "i":
            a.grad[1] = float("inf")
        if event == "m":
            b.grad[2] = float("-inf")
        if event == "n":
            b.grad[0] = float("nan")
        if event in "un":
            scaler.unscale_(first), scaler.unscale_(second)
        scaler.step(first)
        scaler.step(second)
        scaler.update(48.0) if event == "s" else scaler.update()
        yield from (scaler.get_scale(), float(scaler._get_growth_tracker()), a[0].item(), b[1].item())


def numbers(shape, seed):
    i = torch.arange(torch.Size(shape).numel())
    return (((i * 7919 + seed * 104729) % 2003).float() / 1001.5 - 1).reshape(shape)


def train(dtype):
    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)
    )
    with torch.no_grad():
        for seed, p in enumerate(model.parameters(), 1):
            p.copy_(numbers(p.shape, seed) * 0.25)
    x, y = numbers((64, 16), 100), numbers((64, 4), 101)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", 16777216.0, growth_interval=5)
    for i in range(60):
        optimizer.zero_grad()
        with torch.autocast("cpu", getattr(torch, dtype)):
            loss = torch.nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        if i % 2 == 0:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        yield from (loss.item(), scaler.get_scale())
    for p in model.parameters():
        yield from p.detach().reshape(-1).tolist()


def run(program, *arguments, text=""):
    done = subprocess.run([program, *arguments], input=text, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--series", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train", nargs="*", default=[])
    args = parser.parse_args()

    batch = list(cases(args.series, args.seed))
    text = "".join(f"{i!r} {g!r} {b!r} {n} {e}\n" for i, g, b, n, e in batch)
    steps = skips = growths = 0
    for case, line in zip(batch, run(args.program, "trace", text=text).splitlines(), strict=True):
        ours = [float.fromhex(word) for word in line.split()]
        theirs = list(trace(*case))
        if ours != theirs:
            at = next(i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b)
            print(f"{case}: number {at % 4} after step {at // 4} is {ours[at]}, in Python {theirs[at]}")
            return 1
        scales = [case[0], *theirs[::4]]
        steps += len(case[-1])
        skips += sum(case[-1].count(event) for event in "imn")
        growths += sum(b > a for a, b in zip(scales, scales[1:]))
    print(f"{args.series} series, {steps} steps, {skips} skips, {growths} growths: "
          f"scale, tracker and weights as in Python's torch {torch.__version__} after each")

    for dtype in args.train:
        ours = [float.fromhex(word) for word in run(args.program, "train", dtype).split()]
        theirs = list(train(dtype))
        if ours != theirs:
            at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
            print(f"{dtype}: number {at} of {len(theirs)} is {ours[at]}, in Python {theirs[at]}")
            return 1
        scales = theirs[1:120:2]
        print(f"{dtype}: an MLP after 60 steps: {len(theirs)} losses, scales and weights equal; loss {theirs[0]:.4f} to "
              f"{theirs[118]:.4f}, scale 2^24 to {scales[-1]:g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
