"""The lines of tests/vectors/*.txt, and what the families of problems share."""

import pathlib

import torch

FOLDER = pathlib.Path(__file__).resolve().parent.parent.parent / "tests" / "vectors"


class Vectors:
    """The lines of one file."""

    def __init__(self, name, about, digits=17):
        """digits: of float64; fewer where the file is long."""
        self.digits = digits
        self.path = FOLDER / name
        self.lines = [
            f"# {about}",
            f"# Made by: python scripts/make_torch_vectors.py (torch {torch.__version__}, CPU)",
        ]

    def put(self, name, values):
        """Gives back the values."""
        if isinstance(values, torch.Tensor):
            # Nine digits are enough to tell all float32 apart, seventeen for float64.
            digits = 9 if values.dtype == torch.float32 else self.digits
            numbers = values.detach().reshape(-1).tolist()
        else:
            digits, numbers = self.digits, list(values)
        text = " ".join(f"{v:.{digits}g}" for v in numbers)
        self.lines.append(f"{name} {len(numbers)} {text}".rstrip())
        return values

    def write(self):
        self.path.write_text("\n".join(self.lines) + "\n")
        print(f"{self.path.name}: {len(self.lines) - 2} vectors, {self.path.stat().st_size} bytes")


def record(out, name, loss, *inputs):
    """The value, and the gradients for an incoming gradient of 1, 2, 3, …"""
    out.put(f"{name}/value", loss)
    upstream = torch.arange(1, loss.numel() + 1, dtype=loss.dtype).reshape(loss.shape)
    grads = torch.autograd.grad(loss, inputs, upstream)
    for i, g in enumerate(grads):
        out.put(f"{name}/grad{i}", g)


def record_reductions(out, name, call, *inputs, reductions=("none", "mean", "sum")):
    """The same of a loss of fresh leaves, for every reduction."""
    for reduction in reductions:
        leaves = [t.clone().requires_grad_() for t in inputs]
        record(out, f"{name}/{reduction}", call(*leaves, reduction=reduction), *leaves)


def few_digits(x):
    """Numbers that are short to write."""
    return torch.round(x * 64) / 64


def draw(out, name, *shape):
    """A leaf of a normal distribution."""
    return out.put(name, few_digits(torch.randn(*shape)).requires_grad_())


def record_module(
    out, name, module, inputs, result=lambda y: y, all_gradients=True, flat=None, **options
):
    """The module's parameters, its result, and gradients of the inputs and the parameters.

    flat: the tensors of the inputs, where these are tuples."""
    for key, p in module.named_parameters():
        p.data = few_digits(0.5 * torch.randn(p.shape))
        out.put(f"{name}/parameter/{key}", p)
    y = result(module(*inputs, **options))
    record(out, name, y, *(flat or inputs))
    if not all_gradients:
        return
    upstream = torch.arange(1, y.numel() + 1, dtype=y.dtype).reshape(y.shape)
    y = result(module(*inputs, **options))
    grads = torch.autograd.grad(y, list(module.parameters()), upstream)
    for (key, _), g in zip(module.named_parameters(), grads):
        out.put(f"{name}/grad/{key}", g)
