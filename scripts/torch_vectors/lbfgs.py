"""L-BFGS: losses and parameters on Rosenbrock's valley and on a small regression.

The regression is y = tanh(X·w1)·w2 with X, the targets and the first weights from sines, computed
in both programs; its two parameters show how they are joined. Weight decay gives it one minimum:
without, both programs' rounding errors are far apart after some ten iterations.
"""

import torch

from .vectors import Vectors

OPTIONS = {
    "fixed": dict(lr=0.5),
    "fixed_short": dict(lr=0.2, max_iter=5, history_size=3),
    "wolfe": dict(line_search_fn="strong_wolfe"),
    "wolfe_short": dict(lr=0.8, max_iter=6, max_eval=9, history_size=2, line_search_fn="strong_wolfe"),
    "wolfe_far": dict(lr=50.0, max_iter=4, line_search_fn="strong_wolfe"),
    "wolfe_near": dict(lr=1e-4, max_iter=4, line_search_fn="strong_wolfe"),
}
STEPS = {"rosenbrock": 6, "regression": 4}


def sines(shape, factor, offset):
    count = int(torch.tensor(shape).prod())
    i = torch.arange(count, dtype=torch.float64)
    return torch.sin(factor * i + offset).reshape(shape)


def rosenbrock(dtype):
    p = torch.tensor([-1.2, 1.0], dtype=dtype, requires_grad=True)

    def loss():
        x, y = p[0], p[1]
        return (1 - x) ** 2 + 100 * (y - x * x) ** 2

    return [p], loss


def regression(dtype):
    x, y = sines((12, 3), 0.7, 0.1).to(dtype), sines((12, 1), 1.3, 0.5).to(dtype)
    w1 = (0.5 * sines((3, 4), 0.9, 0.2)).to(dtype).requires_grad_()
    w2 = (0.5 * sines((4, 1), 1.1, 0.4)).to(dtype).requires_grad_()

    def loss():
        error = ((torch.tanh(x @ w1) @ w2 - y) ** 2).mean()
        return error + 0.01 * (w1 * w1).sum() + 0.01 * (w2 * w2).sum()

    return [w1, w2], loss


PROBLEMS = {"rosenbrock": rosenbrock, "regression": regression}
# Where a first step is much too short, the line search subtracts losses that are nearly the same:
# on the regression nothing but the order of additions decides how that goes on. In float32 the
# parameters drift apart along the valley, and the losses do not.
RUNS = [(p, o, torch.float64) for p in PROBLEMS for o in OPTIONS] + [
    ("regression", o, torch.float32) for o in OPTIONS
]
RUNS = [run for run in RUNS if run[:2] != ("regression", "wolfe_near")]


def make():
    out = Vectors("lbfgs.txt", "L-BFGS on Rosenbrock's valley and on a small regression.")
    for problem, options_name, dtype in RUNS:
        params, loss = PROBLEMS[problem](dtype)
        optimizer = torch.optim.LBFGS(params, **OPTIONS[options_name])
        calls = 0

        def closure():
            nonlocal calls
            calls += 1
            optimizer.zero_grad()
            value = loss()
            value.backward()
            return value

        run = f"{problem}/{options_name}/{'float64' if dtype == torch.float64 else 'float32'}"
        losses = []
        for step in range(STEPS[problem]):
            losses.append(optimizer.step(closure).item())
            if dtype == torch.float64:
                out.put(f"{run}/{step}/params", torch.cat([p.detach().reshape(-1) for p in params]))
                out.put(f"{run}/{step}/calls", [calls])
        out.put(f"{run}/losses", losses)
        out.put(f"{run}/n_iter", [optimizer.state[params[0]]["n_iter"]])
    out.write()
