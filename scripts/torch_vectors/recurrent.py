"""Recurrent layers and cells: values, and gradients of inputs, states and parameters."""

import torch
from torch import nn
from torch.nn.utils import rnn

from .vectors import Vectors, draw, record_module


def make():
    out = Vectors("recurrent.txt", "Recurrent layers; gradients for an incoming gradient of 1, 2, 3, …")
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    cells(out)
    layers(out)
    packed(out)
    out.write()
    torch.set_default_dtype(torch.float32)


def whole(result):
    """Everything that a layer gives, in one vector."""
    y, states = result
    states = states if isinstance(states, tuple) else (states,)
    return torch.cat([t.reshape(-1) for t in (y, *states)])


def cells(out):
    x, h, c = draw(out, "cell/x", 2, 3), draw(out, "cell/h", 2, 4), draw(out, "cell/c", 2, 4)
    for name, cell in (
        ("tanh", nn.RNNCell(3, 4)),
        ("relu", nn.RNNCell(3, 4, nonlinearity="relu")),
        ("gru", nn.GRUCell(3, 4)),
        ("gru_plain", nn.GRUCell(3, 4, bias=False)),
    ):
        record_module(out, f"cell/{name}", cell, [x, h])
    record_module(out, "cell/lstm", nn.LSTMCell(3, 4), [x, (h, c)], flat=[x, h, c],
                  result=lambda s: torch.cat(s))  # fmt: skip


def layers(out):
    x = draw(out, "x", 3, 2, 3)
    for name, module, states in (
        ("tanh", nn.RNN(3, 4), (1, 4)),
        ("relu", nn.RNN(3, 4, 2, nonlinearity="relu", bias=False), (2, 4)),
        ("gru", nn.GRU(3, 4, 2, bidirectional=True), (4, 4)),
        ("lstm", nn.LSTM(3, 4, 2, bidirectional=True), (4, 4)),
        ("lstm_projected", nn.LSTM(3, 4, 2, proj_size=2), (2, 2, 4)),
    ):
        h = draw(out, f"{name}/h", states[0], 2, states[1])
        hx, flat = h, [x, h]
        if name.startswith("lstm"):
            c = draw(out, f"{name}/c", states[0], 2, states[-1])
            hx, flat = (h, c), [x, h, c]
        record_module(out, name, module, [x, hx], flat=flat, result=whole)
    record_module(out, "batch_first", nn.GRU(3, 4, batch_first=True), [x], result=whole)
    record_module(out, "no_batch", nn.LSTM(3, 4), [x[:, 0].detach().requires_grad_()],
                  result=whole)  # fmt: skip


def packed(out):
    x = draw(out, "packed/x", 4, 3, 3)
    lengths = torch.tensor([2, 4, 1])

    class Packed(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def named_parameters(self):
            return self.layer.named_parameters()

        def parameters(self):
            return self.layer.parameters()

        def forward(self, x):
            y, states = self.layer(rnn.pack_padded_sequence(x, lengths, enforce_sorted=False))
            return rnn.pad_packed_sequence(y)[0], states

    for name, layer in (
        ("tanh", nn.RNN(3, 4, bidirectional=True)),
        ("gru", nn.GRU(3, 4)),
        ("lstm", nn.LSTM(3, 4, 2, bidirectional=True)),
    ):
        record_module(out, f"packed/{name}", Packed(layer), [x], result=whole)
