"""What PyTorch's CPU generator draws after manual_seed(): the last numbers of every draw, which no
number before them may have missed. What needs a build without MKL is made by random_numbers.cpp."""

import torch

from .vectors import Vectors

SEEDS = (0, 1, 2**40 + 12345)
SIZES = (1, 15, 16, 17, 100, 1000)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
KEPT = 20


def word(dtype):
    return str(dtype).removeprefix("torch.")


def make():
    out = Vectors("random_numbers.txt", "The ends of what PyTorch's mt19937 draws on the CPU.")

    def keep(name, x):
        out.put(name, x.reshape(-1)[-KEPT:].to(torch.float64))

    for seed in SEEDS:
        for dtype in FLOATS:
            for n in SIZES:
                name = f"{seed}/{word(dtype)}/{n}"
                torch.manual_seed(seed)
                keep(f"uniform/{name}", torch.empty(n, dtype=dtype).uniform_(-0.123, 0.456))
                keep(f"rand/{name}", torch.rand(n, dtype=dtype))
                torch.manual_seed(seed)
                keep(f"normal/{name}", torch.empty(n, dtype=dtype).normal_(0.3, 0.7))
                # After an odd number of single draws one normal number waits.
                keep(f"randn/{name}", torch.randn(n, dtype=dtype))
        for low, high in ((0, 10), (-5, 2**28 - 6), (-5, 2**28 - 5), (7, 2**40)):
            torch.manual_seed(seed)
            keep(f"randint/{seed}/{high}", torch.randint(low, high, (100,)))
        for dtype in (*FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool):
            torch.manual_seed(seed)
            x = torch.empty(100, dtype=dtype).random_()
            # The halves of 63 bits, each a whole number of a double.
            if dtype == torch.int64:
                keep(f"random/{seed}/int64/upper", x >> 32)
                x &= 2**32 - 1
            keep(f"random/{seed}/{word(dtype)}", x)
        for n in (1, 2, 17, 1000):
            torch.manual_seed(seed)
            keep(f"randperm/{seed}/{n}", torch.randperm(n))
        for dtype in FLOATS[:3]:
            p = torch.arange(100).to(dtype) / 100
            torch.manual_seed(seed)
            keep(f"bernoulli/{seed}/{word(dtype)}", torch.bernoulli(p))
            weights = (torch.arange(30) % 7).to(dtype).reshape(2, 15)
            if dtype != torch.float16:
                torch.manual_seed(seed)
                keep(f"multinomial/{seed}/{word(dtype)}", torch.multinomial(weights, 9, True))
                torch.manual_seed(seed)
                x = (torch.arange(40) % 9 - 4).to(dtype)
                keep(f"rrelu/{seed}/{word(dtype)}", torch.rrelu(x, training=True))

    # Layouts: a transposed tensor is filled as it lies in memory, and its normal numbers are drawn
    # one by one.
    for name, fill in (("uniform", lambda x: x.uniform_()), ("normal", lambda x: x.normal_())):
        x = torch.zeros(6, 5, dtype=torch.float32)
        torch.manual_seed(3)
        fill(x.t())
        keep(f"transposed/{name}", x)
        x = torch.zeros(6, 5, 4)
        torch.manual_seed(3)
        fill(x[:, 1:3].permute(2, 0, 1))
        keep(f"sliced/{name}", x)

    # What one draw leaves to the next, and that a seed forgets the normal number that waits.
    torch.manual_seed(4)
    steps = [torch.randn(3), torch.rand(2), torch.randn(1), torch.randint(0, 9, (2,)), torch.randn(2)]
    torch.manual_seed(4)
    steps += [torch.randn(1), torch.randperm(5), torch.randn(20), torch.randn(1)]
    keep("sequence", torch.cat([s.to(torch.float64) for s in steps])[:20])
    keep("sequence/end", torch.cat([s.to(torch.float64) for s in steps]))

    nn = torch.nn
    for name, make_module in (
        ("linear", lambda: nn.Linear(7, 5)),
        ("bilinear", lambda: nn.Bilinear(3, 4, 5)),
        ("conv1d", lambda: nn.Conv1d(4, 6, 3, groups=2)),
        ("conv2d", lambda: nn.Conv2d(3, 4, (3, 2))),
        ("conv_transpose2d", lambda: nn.ConvTranspose2d(3, 4, 3)),
        ("embedding", lambda: nn.Embedding(10, 3, padding_idx=2)),
        ("embedding_bag", lambda: nn.EmbeddingBag(10, 3)),
        ("lstm", lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True)),
        ("gru_cell", lambda: nn.GRUCell(3, 4)),
        ("attention", lambda: nn.MultiheadAttention(8, 2)),
        ("prelu", lambda: nn.Sequential(nn.Linear(2, 3), nn.PReLU(), nn.BatchNorm1d(3), nn.Linear(3, 1))),
    ):
        torch.manual_seed(0)
        module = make_module()
        values = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
        keep(f"module/{name}", values)
        out.put(f"module/{name}/sum", values.double().sum())

    x = torch.empty(20, 30)
    for name in ("xavier_uniform_", "xavier_normal_", "kaiming_uniform_", "kaiming_normal_"):
        torch.manual_seed(0)
        keep(f"init/{name}", getattr(nn.init, name)(x))
    torch.manual_seed(0)
    keep("init/sparse_", nn.init.sparse_(x, 0.5))
    for dtype in FLOATS[:2]:
        for name, shape in (("wide", (5, 2, 4)), ("tall", (8, 5))):
            torch.manual_seed(0)
            keep(f"init/orthogonal_/{word(dtype)}/{name}", nn.init.orthogonal_(torch.empty(shape, dtype=dtype)))
    out.write()
