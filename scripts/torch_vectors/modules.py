"""What PyTorch makes of tests/vectors/module_cases.txt, which tests/nn/every_module_test.cpp reads, too.

Inputs stand with their shapes, so that the test states no numbers; those under a kind's name are of
all its cases that have none of their own. Only what does not draw random numbers is here.
"""

import ast
import pathlib
import warnings
import zlib

import torch
from torch import nn
from torch.nn import functional as F

from .vectors import FOLDER, Vectors, few_digits

TENSORS = {"weight", "pos_weight", "_weight", "_random_samples", "bias", "offsets", "per_sample_weights",
           "running_mean", "running_var"}  # fmt: skip


def normal(*shape):
    return few_digits(torch.randn(*shape))


def uniform(*shape):
    """Away from 0 and 1."""
    return few_digits(0.1 + 0.8 * torch.rand(*shape))


def read(path):
    """Name, flags, words and options of each case."""
    for line in pathlib.Path(path).read_text().splitlines():
        if line and not line.startswith("#"):
            name, *rest = line.split()
            yield (name, {w for w in rest if w[0] == "@"}, [w for w in rest if w[0] != "@" and "=" not in w],
                   dict(w.split("=") for w in rest if "=" in w))  # fmt: skip


def value_of(key, text):
    if key == "distance_function":
        return {"l1": lambda a, b: (a - b).abs().sum(-1)}[text]
    if text == "none" and key != "reduction":
        return None
    if text[0] == "[":
        numbers = ast.literal_eval(text.replace("none", "None"))
        if key not in TENSORS:
            return tuple(numbers)
        return torch.tensor(numbers, dtype=torch.int64 if key == "offsets" else torch.float64)
    if text in ("true", "false"):
        return text == "true"
    try:
        return ast.literal_eval(text)
    except ValueError:
        return text


def stack(kind, words, options):
    """A transformer's coder: its layer's options, and its own."""
    num_layers, norm = options.pop("num_layers"), options.pop("norm", None)
    layer = getattr(nn, kind + "Layer")(*words, **options)
    return getattr(nn, kind)(layer, num_layers, nn.LayerNorm(norm) if norm else None)


def made(kind, words, options):
    """A module, or a function with its options."""
    if kind == "Functional":
        return nn.ReLU()
    if kind == "Sequential":
        return nn.Sequential(nn.Linear(5, 3), nn.ReLU(), nn.Linear(3, 2))
    if kind in ("TransformerEncoder", "TransformerDecoder"):
        return stack(kind, words, options)
    if kind == "CTCLoss":
        loss = nn.CTCLoss(**options)  # its gradients are right behind a log_softmax alone
        return lambda x, *rest: loss(torch.log_softmax(x, 2), *rest)
    if kind.endswith("from_pretrained"):
        return (nn.EmbeddingBag if "bag" in kind else nn.Embedding).from_pretrained(options.pop("_weight"), **options)
    if kind == "instance_norm":
        state = [options[k] for k in ("running_mean", "running_var") if k in options]
        return lambda x: (F.instance_norm(x, **options), *state)
    if kind[0].islower():
        return lambda *x: getattr(F, kind)(*x, *words, **options)
    return getattr(nn, kind)(*words, **options)


def images(d):
    return normal(*{1: (2, 4, 5), 2: (1, 4, 5, 5), 3: (1, 4, 3, 4, 3)}[d])


def unpooled(d, length, *pool):
    """The maxima of windows, and where they were."""
    x, where = getattr(F, f"max_pool{d}d")(normal(1, 2, *(length,) * d), *pool, return_indices=True)
    return x, where


SIGNED = {"HingeEmbeddingLoss": 1, "SoftMarginLoss": 1, "MarginRankingLoss": 2}


def inputs(kind, case):
    """Whether they are this case's own, how many of the first may be leaves, and the inputs.

    case: what the case is called behind its kind."""
    own = True
    tokens = torch.tensor([[1, 0, 2], [2, 3, 1]])
    base = kind.removesuffix("_with_indices")
    d = int(base[-2]) if base[-2:] in ("1d", "2d", "3d") else 0
    stem = base[:-2] if d else kind
    if kind == "CrossEntropyLoss" and case.startswith("probabilities"):
        return own, 2, normal(3, 4), uniform(3, 4)
    if kind == "PoissonNLLLoss" and case in ("plain", "eps"):
        return own, 2, uniform(3, 4), 3 * uniform(3, 4)
    if kind == "CTCLoss":
        targets = torch.tensor([[2, 3], [0, 2]] if case == "blank" else [[2, 3], [1, 2]])
        steps = torch.tensor([1 if case == "impossible" else 5, 4])
        return case in ("blank", "impossible"), 1, normal(5, 2, 4), targets, steps, torch.tensor([2, 1])
    if kind in ("EmbeddingBag", "embedding_bag_from_pretrained") and case in ("offsets", "last_offset", "weighted"):
        offsets = [0, 2] if kind == "EmbeddingBag" and case == "offsets" else [0, 2, 6]
        weights = [normal(2, 3)] if case == "weighted" else []
        return (own, 9, tokens, None, *weights) if weights else (own, 9, tokens.reshape(-1), torch.tensor(offsets))
    if kind == "embedding_bag":
        flat = case in ("offsets", "last_offset")
        return flat, 9, tokens.reshape(-1) if flat else tokens, normal(4, 3)
    if kind == "MultiheadAttention" and case in ("sizes", "every"):
        return own, 9, normal(4, 2, 6), normal(5, 2, 3), normal(5, 2, 5)
    if kind == "Upsample" and case in ("linear", "trilinear"):
        return own, 9, images(1 if case == "linear" else 3)
    if stem in ("MaxUnpool", "max_unpool"):
        if case == "numbers":
            return own, 9, *unpooled(d, 3, 2, 3, 1)
        return case == "size", 9, *unpooled(d, 5 if case == "size" else 4, 2)
    if stem in ("conv", "conv_transpose"):
        groups = 2 if case == "groups" else 1
        features = (4, 2) if stem == "conv_transpose" else (2, 4 // groups)
        return groups == 2, 9, images(d), normal(*features, *(2,) * d)
    return False, *of_kind(kind, stem, d, tokens)


def of_kind(kind, stem, d, tokens):
    """The number of leaves and the inputs that all cases of a kind share."""
    if stem == "LPPool":
        return 9, uniform(1, 2, *(3,) * d)
    if stem.endswith("Pad"):
        return 9, normal(1, 2, *(3,) * d)
    if stem in ("FractionalMaxPool", "fractional_max_pool") and d == 3:
        return 9, normal(1, 4, 5, 4, 5)
    if kind in ("Dropout", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout",
                "dropout", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"):  # fmt: skip
        return 9, normal(2, 3, 2, 2, 2)
    if d and stem != "CrossMapLRN" and stem != "Softmax":
        return 9, images(d)
    if kind.endswith("Loss") and kind != "AdaptiveLogSoftmaxWithLoss":
        return loss_inputs(kind)
    if kind in ("GRU", "LSTM", "RNN", "GRUCell", "RNNCell", "LSTMCell"):
        if not kind.endswith("Cell"):
            return 9, normal(4, 2, 3)
        return 9, normal(2, 3), *([] if kind == "LSTMCell" else [normal(2, 2)])
    if kind == "MultiheadAttention":
        return 9, normal(4, 2, 6), normal(5, 2, 6), normal(5, 2, 6)
    if kind in ("TransformerDecoder", "TransformerDecoderLayer", "Transformer"):
        return 9, normal(2, 2, 4), normal(3, 2, 4)
    if kind == "batch_norm":
        return 1, images(2), normal(4), uniform(4)
    return 9, *{
        "Softmax2d": lambda: [normal(2, 3, 2, 2)],
        "Flatten": lambda: [normal(2, 3, 2, 2)],
        "Bilinear": lambda: [normal(2, 5), normal(2, 4)],
        "CosineSimilarity": lambda: [normal(2, 4, 5), normal(2, 4, 5)],
        "PairwiseDistance": lambda: [normal(2, 4, 5), normal(2, 4, 5)],
        "Fold": lambda: [normal(1, 8, 6)],
        "Unfold": lambda: [images(2)],
        "PixelShuffle": lambda: [images(2)],
        "PixelUnshuffle": lambda: [normal(1, 2, 4, 2)],
        "Upsample": lambda: [images(2)],
        "interpolate": lambda: [images(2)],
        "pad": lambda: [normal(1, 2, 3, 3)],
        "grid_sample": lambda: [normal(1, 2, 4, 5), few_digits(1.2 - 2.4 * torch.rand(1, 3, 2, 2))],
        "GroupNorm": lambda: [images(2)],
        "LocalResponseNorm": lambda: [images(2)],
        "CrossMapLRN2d": lambda: [normal(1, 4, 2, 2)],
        "group_norm": lambda: [images(2)],
        "embedding_from_pretrained": lambda: [tokens],
        "embedding_bag_from_pretrained": lambda: [tokens],
        "Embedding": lambda: [tokens],
        "EmbeddingBag": lambda: [tokens],
        "embedding": lambda: [tokens, normal(4, 3)],
        "AdaptiveLogSoftmaxWithLoss": lambda: [normal(5, 6), torch.tensor([7, 0, 3, 1, 4])],
        "TransformerEncoder": lambda: [normal(3, 2, 4)],
        "TransformerEncoderLayer": lambda: [normal(3, 2, 4)],
        "Linear": lambda: [images(1)],
        "Sequential": lambda: [images(1)],
        "LayerNorm": lambda: [images(1)],
        "RMSNorm": lambda: [images(1)],
        "layer_norm": lambda: [images(1)],
        "rms_norm": lambda: [images(1)],
        "instance_norm": lambda: [images(1)],
        "normalize": lambda: [images(1)],
    }.get(kind, lambda: [2 * normal(2, 4, 2)])()


def loss_inputs(kind):
    """The same of a loss."""
    x, y, p, q = normal(3, 4), normal(3, 4), uniform(3, 4), uniform(3, 4)
    classes = torch.tensor([1, 3, 0])
    if kind in SIGNED:
        sign = torch.where(normal(3, 4) > 0, 1.0, -1.0)
        return SIGNED[kind], *([x, y][: SIGNED[kind]]), sign
    return {
        "KLDivLoss": (9, x, q),
        "PoissonNLLLoss": (9, x, 3 * p),
        "GaussianNLLLoss": (9, x, y, p),
        "BCELoss": (1, p, q),
        "BCEWithLogitsLoss": (1, x, q),
        "MultiLabelSoftMarginLoss": (1, x, q),
        "CrossEntropyLoss": (9, x, classes),
        "NLLLoss": (9, x, classes),
        "MultiMarginLoss": (9, x, classes),
        "MultiLabelMarginLoss": (9, x, torch.tensor([[1, 0, -1, 2], [3, -1, 0, 0], [0, 2, 1, -1]])),
        "CosineEmbeddingLoss": (9, x, y, torch.tensor([1, -1, 1])),
        "TripletMarginLoss": (9, x, y, p),
        "TripletMarginWithDistanceLoss": (9, x, y, p),
    }.get(kind, (9, x, y))


def flat(y):
    """A tensor as it is; of several, all elements in one row."""
    if isinstance(y, torch.Tensor):
        return y
    return torch.cat([flat(part).reshape(-1).to(torch.float64) for part in y if part is not None])


class Writer:
    def __init__(self):
        self.out = Vectors("modules.txt", "The cases of module_cases.txt; gradients for an incoming 1, 2, 3, …", digits=13)
        self.kinds = set()

    def put_inputs(self, owner, leaves, given):
        """1: a leaf, 0: a constant, -1: whole numbers, -2: none."""
        about = []
        for i, x in enumerate(given):
            about.append(-2 if x is None else int(i < leaves) if x.is_floating_point() else -1)
            if x is not None:
                self.out.put(f"{owner}/in{i}", x)
                self.out.put(f"{owner}/shape{i}", x.shape)
        self.out.put(f"{owner}/leaves", about)

    def case(self, name, flags, words, options):
        kind, _, case = name.partition(".")
        torch.manual_seed(zlib.crc32(kind.encode()))
        own, leaves, *given = inputs(kind, case)
        if own or kind not in self.kinds:
            self.put_inputs(name if own else kind, leaves, given)
        self.kinds |= {kind} - ({kind} if own else set())
        options = {k: value_of(k, v) for k, v in options.items()}
        if "dtype" in options:
            options["dtype"] = getattr(torch, options["dtype"])
        call = made(kind, [value_of("", w) for w in words], options)
        module = call if isinstance(call, nn.Module) else nn.Identity()
        module.train("@eval" not in flags)
        torch.manual_seed(zlib.crc32(name.encode()))
        if "@start" not in flags:
            for key, p in module.named_parameters():
                p.data = few_digits(0.5 * torch.randn(p.shape))
                self.out.put(f"{name}/parameter/{key}", p)
        x = [None if t is None else t.detach().clone() for t in given]
        for i, t in enumerate(x):
            if t is not None:
                t.requires_grad_(i < leaves and t.is_floating_point())
        y = flat(call(*x))
        self.out.put(f"{name}/value", y.to(torch.float64))
        self.out.put(f"{name}/sizes", y.shape)
        for key, b in module.named_buffers():
            if key.startswith(("running", "num_batches")):
                self.out.put(f"{name}/after/{key}", b)
        for i, t in enumerate(x):
            if kind == "batch_norm" and i > 0:
                self.out.put(f"{name}/after/in{i}", t)
        upstream = torch.arange(1, y.numel() + 1, dtype=y.dtype).reshape(y.shape)
        wanted = [(f"in{i}", t) for i, t in enumerate(x) if t is not None and t.requires_grad]
        wanted += module.named_parameters()
        if wanted and y.requires_grad and "@value" not in flags:
            grads = torch.autograd.grad(y, [t for _, t in wanted], upstream, allow_unused=True)
            for (key, t), g in zip(wanted, grads):
                self.out.put(f"{name}/grad/{key}", torch.zeros_like(t) if g is None else g)


def make():
    torch.set_default_dtype(torch.float64)
    writer = Writer()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in read(FOLDER / "module_cases.txt"):
            if "@print" in case[1]:
                continue
            try:
                writer.case(*case)
            except Exception as e:
                raise RuntimeError(f"{case[0]}: {e}") from e
    writer.out.write()
    torch.set_default_dtype(torch.float32)
