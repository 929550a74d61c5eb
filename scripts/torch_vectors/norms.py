"""Normalisation: values, gradients of all inputs, and what stays in running statistics."""

import torch
from torch import nn
from torch.nn import functional as F

from .vectors import Vectors, record


def make():
    out = Vectors("norms.txt", "Normalisation, and its gradients for an incoming gradient of 1, 2, 3, …")
    torch.manual_seed(1)

    def draw(name, *shape):
        x = (1.5 * torch.randn(*shape, dtype=torch.float64) + 0.75).requires_grad_()
        out.put(name, x)
        return x

    for name, shape, length in (("rows", (3, 5), (5,)), ("blocks", (2, 2, 3), (2, 3))):
        x, w, b = draw(f"{name}/x", *shape), draw(f"{name}/w", *length), draw(f"{name}/b", *length)
        record(out, f"{name}/layer_norm", F.layer_norm(x, length), x)
        record(out, f"{name}/layer_norm_weight", F.layer_norm(x, length, w), x, w)
        record(out, f"{name}/layer_norm_both", F.layer_norm(x, length, w, b, 0.1), x, w, b)
        record(out, f"{name}/rms_norm", F.rms_norm(x, length), x)
        record(out, f"{name}/rms_norm_weight", F.rms_norm(x, length, w, 0.1), x, w)

    for name, shape in (("2d", (5, 3)), ("3d", (3, 2, 4)), ("4d", (2, 4, 2, 2))):
        x = draw(f"{name}/x", *shape)
        w, b = draw(f"{name}/w", shape[1]), draw(f"{name}/b", shape[1])
        mean = torch.linspace(-1, 1, shape[1], dtype=torch.float64)
        var = torch.linspace(0.5, 2, shape[1], dtype=torch.float64)
        m, v = mean.clone(), var.clone()
        record(out, f"{name}/batch_norm", F.batch_norm(x, m, v, w, b, True, 0.3, 0.01), x, w, b)
        out.put(f"{name}/batch_norm/mean", m)
        out.put(f"{name}/batch_norm/var", v)
        record(out, f"{name}/batch_norm_eval", F.batch_norm(x, mean, var, w, b), x, w, b)
        record(out, f"{name}/batch_norm_plain", F.batch_norm(x, None, None, training=True), x)
        if len(shape) == 2:
            continue
        m, v = mean.clone(), var.clone()
        y = F.instance_norm(x, m, v, w, b, True, 0.3, 0.01)
        record(out, f"{name}/instance_norm", y, x, w, b)
        out.put(f"{name}/instance_norm/mean", m)
        out.put(f"{name}/instance_norm/var", v)
        y = F.instance_norm(x, mean, var, w, b, use_input_stats=False)
        record(out, f"{name}/instance_norm_eval", y, x, w, b)
        for groups in (1, 2):
            record(out, f"{name}/group_norm{groups}", F.group_norm(x, groups, w, b, 0.01), x, w, b)
        record(out, f"{name}/group_norm_plain", F.group_norm(x, 2), x)
        y = F.local_response_norm(x, 2, alpha=0.5, beta=0.6, k=1.5)
        record(out, f"{name}/local_response_norm", y, x)
        record(out, f"{name}/normalize", F.normalize(x), x)
        record(out, f"{name}/normalize_last", F.normalize(x, p=3.0, dim=-1), x)

    # Three batches of another size each in training, then one in evaluation.
    batches = [draw(f"layer/batch{i}", 2 + i, 3) for i in range(4)]
    for name, momentum in (("tenth", 0.1), ("half", 0.5), ("cumulative", None)):
        layer = nn.BatchNorm1d(3, momentum=momentum, dtype=torch.float64)
        for batch in batches[:3]:
            layer(batch)
        out.put(f"layer/{name}/mean", layer.running_mean)
        out.put(f"layer/{name}/var", layer.running_var)
        out.put(f"layer/{name}/count", layer.num_batches_tracked)
        layer.eval()
        out.put(f"layer/{name}/y", layer(batches[3]))
    out.write()
