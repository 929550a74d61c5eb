#!/usr/bin/env python3
"""Writes tests/fuzz/seeds/: small files by NumPy, safetensors, Pillow, PyTorch and pickle, from which fuzzing starts.

    python3 -m venv venv && venv/bin/pip install numpy safetensors pillow torch==2.15.0
    venv/bin/python scripts/make_fuzz_seeds.py

A file's first byte says whether the fuzzer repairs check sums after a change (1) or not (0).
"""
import io
import pathlib
import pickle
import zipfile

import numpy as np
import torch
from PIL import Image
from safetensors.numpy import save

ROOT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fuzz" / "seeds"


def write(target, name, data):
    folder = ROOT / target
    folder.mkdir(parents=True, exist_ok=True)
    for repaired in (0, 1):
        (folder / f"{name}-{repaired}").write_bytes(bytes([repaired]) + data)


def written(save_to, *args, **options):
    out = io.BytesIO()
    save_to(out, *args, **options)
    return out.getvalue()


x = np.arange(6, dtype=np.float32).reshape(2, 3)
write("safetensors", "numpy", save({"a": x, "b.c": x.astype(np.float16), "n": np.array(7)}, {"by": "numpy"}))
for name, array in {"fortran": np.asfortranarray(x), "big-endian": x.astype(">f8"), "bool": x > 2,
                    "scalar": np.array(3.5), "empty": np.zeros((0, 4), np.int64)}.items():
    write("npy", name, written(np.save, array))
write("npy", "object", written(np.save, np.array([{}, None], dtype=object), allow_pickle=True))
write("npz", "stored", written(np.savez, a=x, b=x > 1))
write("npz", "deflated", written(np.savez_compressed, a=x, b=np.zeros(100)))
bytes_ = (np.arange(5 * 4 * 4) * 3).astype(np.uint8).reshape(5, 4, 4)
for mode, picture in {"L": bytes_[:, :, 0], "LA": bytes_[:, :, :2], "RGB": bytes_[:, :, :3], "RGBA": bytes_}.items():
    image = Image.fromarray(np.ascontiguousarray(picture), mode)
    write("image", f"{mode}.png", written(image.save, format="PNG", optimize=True))
write("image", "palette.png", written(Image.fromarray(bytes_[:, :, :3], "RGB").quantize(4).save, format="PNG"))
write("image", "grey.pgm", written(Image.fromarray(bytes_[:, :, 0].copy(), "L").save, format="PPM"))
write("image", "colour.ppm", written(Image.fromarray(bytes_[:, :, :3].copy(), "RGB").save, format="PPM"))

t = torch.arange(6.).reshape(2, 3)
layer = torch.nn.BatchNorm1d(2)
torch.nn.init.constant_(layer.bias, 0.5)
write("pt", "state_dict", written(lambda out, x: torch.save(x, out), layer.state_dict()))
write("pt", "views", written(lambda out, x: torch.save(x, out), [t.t(), t[1:, ::2], t[0, 0].expand(3), t[:0]]))
write("pt", "checkpoint", written(lambda out, x: torch.save(x, out), {
    "model": {"w": torch.nn.Parameter(t.half())}, "epoch": 3, "lr": 1e-3, "note": "\xe4", "optimizer": {
        "state": {0: {"step": torch.tensor(1.), "mask": t > 1}}, "param_groups": [{"betas": (0.9, None), "on": True}]}}))
write("pt", "protocol-5", written(lambda out, x: torch.save(x, out, pickle_protocol=5), {"a": t.bfloat16(), "n": 1 << 40}))
write("pt", "legacy", written(lambda out, x: torch.save(x, out, _use_new_zipfile_serialization=False), {"a": t[:, 1], "b": t}))


class Command:
    """What a malicious file would have a reader do."""

    def __reduce__(self):
        return exec, ("raise SystemExit",)


def archive(out, value):
    with zipfile.ZipFile(out, "w") as file:
        for name, data in {"data.pkl": pickle.dumps(value, 2), "data/0": bytes(16), "version": b"3\n"}.items():
            file.writestr(f"x/{name}", data)


write("pt", "command", written(archive, {"a": Command()}))
write("pt", "no-tensors", written(archive, {"a": [1, -2, (3.5, None)], "b": {True: "text"}, "c": [[[[]]]]}))
