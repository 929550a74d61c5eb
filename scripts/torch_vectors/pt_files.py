"""tests/vectors/pt/*.pt: small networks as torch.save writes them, each with an input and what it makes of it.

The old form calls storages by their addresses, which differ from run to run.
"""

import torch
from torch import nn

from .vectors import FOLDER

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
STORED = {"mlp_float32_zip", "mlp_float16_zip", "mlp_bfloat16_zip", "mlp_float32_legacy", "convnet_float32_zip",
          "convnet_float16_legacy", "gpt_float32_zip", "gpt_bfloat16_legacy"}  # fmt: skip


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(11, 8), nn.Embedding(6, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 11, bias=False)

    def forward(self, x):
        h = self.tokens(x) + self.places(torch.arange(len(x))).unsqueeze(1)
        mask = nn.Transformer.generate_square_subsequent_mask(len(x), dtype=h.dtype)
        return self.head(self.norm(self.encoder(h, mask)))


def networks():
    """Name, network and input; the convnet has seen numbers, so that its statistics are its own."""
    mlp = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    convnet = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                            nn.Linear(12, 2))  # fmt: skip
    convnet(torch.randn(8, 1, 4, 4) + 1)
    yield "mlp", mlp, torch.randn(4, 6)
    yield "convnet", convnet, torch.randn(2, 1, 4, 4)
    yield "gpt", GPT(), torch.randint(11, (6, 2))


def cases():
    """Of each network, dtype and form of the file: its name, what it holds, and the options of torch.save."""
    torch.manual_seed(1)
    for name, net, x in networks():
        net.eval()
        for dtype in DTYPES:
            net.to(dtype)
            given = x.to(dtype) if x.is_floating_point() else x
            with torch.no_grad():
                held = {"model": net.state_dict(), "x": given, "y": net(given), "epoch": 3}
            for form in ("zip", "legacy"):
                yield (f"{name}_{str(dtype)[6:]}_{form}", held,
                       {"_use_new_zipfile_serialization": form == "zip"})  # fmt: skip


def make():
    folder = FOLDER / "pt"
    folder.mkdir(exist_ok=True)
    for name, held, options in cases():
        if name in STORED:
            torch.save(held, folder / f"{name}.pt", **options)
        if name == "mlp_float32_zip":
            torch.save(held["model"], folder / "mlp_state_dict.pt")
    for protocol in (3, 4, 5):
        torch.save({"x": torch.arange(3.0)}, folder / f"protocol_{protocol}_legacy.pt", pickle_protocol=protocol,
                   _use_new_zipfile_serialization=False)  # fmt: skip
    total = sum(file.stat().st_size for file in folder.glob("*.pt"))
    print(f"pt: {len(list(folder.glob('*.pt')))} files, {total} bytes")
