"""CTC loss: values, and gradients of the logits before log_softmax."""

import torch
from torch.nn import functional as F

from .vectors import Vectors, draw, record


def make():
    out = Vectors("ctc.txt", "ctc_loss; gradients of logits for an incoming gradient of 1, 2, 3, …")
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    logits = draw(out, "logits", 6, 4, 5)
    padded = torch.tensor([[1, 2, 2], [3, 0, 0], [4, 1, 3], [1, 1, 1]])
    lengths = torch.tensor([3, 1, 3, 0])
    joined = torch.tensor([1, 2, 2, 3, 4, 1, 3])
    steps = torch.tensor([6, 5, 3, 4])
    for reduction in ("none", "mean", "sum"):
        for name, targets in (("padded", padded), ("joined", joined)):
            loss = F.ctc_loss(logits.log_softmax(2), targets, steps, lengths, reduction=reduction)
            record(out, f"{name}/{reduction}", loss, logits)
    other = torch.where(padded == 0, 2, padded - 1)
    record(out, "blank", F.ctc_loss(logits.log_softmax(2), other, steps, lengths, blank=4,
                                    reduction="none"), logits)  # fmt: skip
    # The second sample has one step for a label that is said twice.
    short = torch.tensor([6, 2, 3, 4])
    twice = torch.tensor([[1, 2, 2], [3, 3, 0], [4, 1, 3], [1, 1, 1]])
    record(out, "zero_infinity", F.ctc_loss(logits.log_softmax(2), twice, short,
                                            torch.tensor([3, 2, 3, 0]), reduction="none",
                                            zero_infinity=True), logits)  # fmt: skip
    one = draw(out, "one", 6, 5)
    record(out, "no_batch", F.ctc_loss(one.log_softmax(1), padded[0], torch.tensor(6),
                                       torch.tensor(3)), one)  # fmt: skip
    out.write()
    torch.set_default_dtype(torch.float32)
