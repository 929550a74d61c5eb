"""Every module of nn with options that are not its defaults: the truth of tests/nn/every_module_test.cpp.

Inputs stand with their shapes, so that the test states a module and no numbers. Those that draw are
evaluated, or given their samples. A name behind a dot is a second use of the module.
"""

import torch
from torch import nn

from .vectors import Vectors, few_digits


class Cases:
    def __init__(self):
        self.out = Vectors("modules.txt", "Modules by name; gradients for an incoming gradient of 1, 2, 3, …")

    def case(self, name, module, *inputs, result=lambda y: y, train=True, leaves=9):
        """Inputs: tensors, of which the first ones are leaves if they are floating-point."""
        module.train(train)
        for key, p in module.named_parameters():
            p.data = few_digits(0.5 * torch.randn(p.shape))
            self.out.put(f"{name}/parameter/{key}", p)
        inputs = [x.detach().clone() for x in inputs]
        for i, x in enumerate(inputs):
            self.out.put(f"{name}/in{i}", x)
            self.out.put(f"{name}/shape{i}", x.shape)
            x.requires_grad_(i < leaves and x.is_floating_point())
        # 1: a leaf, 0: a constant, -1: whole numbers.
        self.out.put(f"{name}/leaves", [x.requires_grad if x.is_floating_point() else -1 for x in inputs])
        y = result(module(*inputs))
        self.out.put(f"{name}/value", y)
        upstream = torch.arange(1, y.numel() + 1, dtype=y.dtype).reshape(y.shape)
        wanted = [(f"in{i}", x) for i, x in enumerate(inputs) if x.requires_grad]
        wanted += module.named_parameters()
        grads = torch.autograd.grad(y, [x for _, x in wanted], upstream, allow_unused=True)
        for (key, x), g in zip(wanted, grads):
            self.out.put(f"{name}/grad/{key}", torch.zeros_like(x) if g is None else g)


def normal(*shape):
    return few_digits(torch.randn(*shape))


def uniform(*shape):
    """Away from 0 and 1."""
    return few_digits(0.1 + 0.8 * torch.rand(*shape))


def activations(c):
    x = normal(2, 4, 3)
    for module in (
        nn.Identity(), nn.ReLU(), nn.ReLU6(), nn.ELU(0.7), nn.SELU(), nn.CELU(0.5), nn.SiLU(), nn.Mish(),
        nn.Tanh(), nn.Tanhshrink(), nn.Sigmoid(), nn.LogSigmoid(), nn.Hardsigmoid(), nn.Hardswish(),
        nn.Hardtanh(-0.7, 0.9), nn.Hardshrink(0.3), nn.Softshrink(0.3), nn.Softplus(2.0, 1.5),
        nn.Softsign(), nn.LeakyReLU(0.2), nn.Threshold(0.1, 2.0), nn.PReLU(4), nn.GELU("tanh"),
        nn.GLU(1), nn.Softmax(1), nn.LogSoftmax(1), nn.Softmin(1),
    ):  # fmt: skip
        c.case(type(module).__name__, module, x)
    c.case("Softmax2d", nn.Softmax2d(), normal(2, 3, 2, 2))
    c.case("RReLU", nn.RReLU(0.1, 0.3), x, train=False)
    for module in (nn.Dropout(0.3), nn.Dropout2d(0.3), nn.Dropout3d(0.3), nn.AlphaDropout(0.3),
                   nn.FeatureAlphaDropout(0.3)):  # fmt: skip
        c.case(type(module).__name__, module, normal(2, 3, 2, 2, 2), train=False)
    c.case("Flatten", nn.Flatten(2), normal(2, 3, 2, 2))
    c.case("Unflatten", nn.Unflatten(1, (2, 2)), x)
    c.case("Functional", nn.ReLU(), x)


def losses(c):
    x, y = normal(3, 4), normal(3, 4)
    p, q = uniform(3, 4), uniform(3, 4)
    sign = torch.where(y > 0, 1.0, -1.0)
    classes = torch.tensor([1, 3, 0])
    weight = torch.tensor([0.5, 1.0, 2.0, 0.25])
    c.case("L1Loss", nn.L1Loss(reduction="sum"), x, y)
    c.case("MSELoss", nn.MSELoss(reduction="none"), x, y)
    c.case("SmoothL1Loss", nn.SmoothL1Loss(beta=0.5), x, y)
    c.case("HuberLoss", nn.HuberLoss(delta=0.5), x, y)
    c.case("KLDivLoss", nn.KLDivLoss(reduction="batchmean", log_target=True), x, y)
    c.case("PoissonNLLLoss", nn.PoissonNLLLoss(full=True), x, 3 * p)
    c.case("GaussianNLLLoss", nn.GaussianNLLLoss(full=True), x, y, p)
    c.case("BCELoss", nn.BCELoss(weight), p, q, leaves=1)
    c.case("BCEWithLogitsLoss", nn.BCEWithLogitsLoss(weight, pos_weight=2 * weight), x, q, leaves=1)
    c.case("CrossEntropyLoss", nn.CrossEntropyLoss(weight, ignore_index=3, label_smoothing=0.1), x, classes)
    c.case("CrossEntropyLoss.probabilities", nn.CrossEntropyLoss(weight, label_smoothing=0.1), x, p)
    c.case("NLLLoss", nn.NLLLoss(weight, ignore_index=3), x, classes)
    c.case("HingeEmbeddingLoss", nn.HingeEmbeddingLoss(margin=0.3), x, sign, leaves=1)
    c.case("SoftMarginLoss", nn.SoftMarginLoss(reduction="sum"), x, sign, leaves=1)
    c.case("MarginRankingLoss", nn.MarginRankingLoss(0.3), x, y, sign, leaves=2)
    c.case("CosineEmbeddingLoss", nn.CosineEmbeddingLoss(0.1), x, y, torch.tensor([1, -1, 1]))
    c.case("MultiMarginLoss", nn.MultiMarginLoss(2, 0.7, weight), x, classes)
    c.case("MultiLabelMarginLoss", nn.MultiLabelMarginLoss(), x,
           torch.tensor([[1, 0, -1, 2], [3, -1, 0, 0], [0, 2, 1, -1]]))  # fmt: skip
    c.case("MultiLabelSoftMarginLoss", nn.MultiLabelSoftMarginLoss(weight), x, q, leaves=1)
    c.case("TripletMarginLoss", nn.TripletMarginLoss(0.7, 3.0, swap=True), x, y, p)
    c.case("TripletMarginWithDistanceLoss", nn.TripletMarginWithDistanceLoss(margin=0.7, swap=True), x, y, p)
    steps = torch.tensor([5, 4])
    c.case("CTCLoss", nn.CTCLoss(1, "sum"), few_digits(torch.log_softmax(normal(5, 2, 4), 2)),
           torch.tensor([[2, 3], [0, 2]]), steps, torch.tensor([2, 1]))  # fmt: skip


def layers(c):
    x = {1: normal(2, 4, 5), 2: normal(1, 4, 5, 5), 3: normal(1, 4, 4, 3, 4)}
    c.case("Linear", nn.Linear(5, 3, bias=False), x[1])
    c.case("Bilinear", nn.Bilinear(5, 4, 3), normal(2, 5), normal(2, 4))
    c.case("CosineSimilarity", nn.CosineSimilarity(2, 1e-6), x[1], normal(2, 4, 5))
    c.case("PairwiseDistance", nn.PairwiseDistance(3.0, keepdim=True), x[1], normal(2, 4, 5))
    for d in (1, 2, 3):
        in_rank = lambda name: getattr(nn, f"{name}{d}d")  # noqa: E731
        c.case(f"Conv{d}d", in_rank("Conv")(4, 2, 3, stride=2, padding=1, groups=2, padding_mode="reflect"), x[d])
        c.case(f"ConvTranspose{d}d",
               in_rank("ConvTranspose")(4, 2, 2, stride=2, padding=1, output_padding=1, groups=2, bias=False), x[d])  # fmt: skip
        c.case(f"MaxPool{d}d", in_rank("MaxPool")(3, 2, 1, ceil_mode=True), x[d])
        options = {} if d == 1 else {"divisor_override": 5}
        c.case(f"AvgPool{d}d", in_rank("AvgPool")(3, 2, 1, True, False, **options), x[d])
        c.case(f"LPPool{d}d", in_rank("LPPool")(3.0, 2, 1), uniform(1, 2, *(3,) * d))
        c.case(f"AdaptiveMaxPool{d}d", in_rank("AdaptiveMaxPool")(2), x[d])
        c.case(f"AdaptiveAvgPool{d}d", in_rank("AdaptiveAvgPool")(2), x[d])
        _, where = in_rank("MaxPool")(2, return_indices=True)(normal(1, 2, *(4,) * d))
        c.case(f"MaxUnpool{d}d", in_rank("MaxUnpool")(2), normal(*where.shape), where)
        frame = (1, 0, 1, 1, 0, 1)[: 2 * d]
        small = normal(1, 2, *(3,) * d)
        for kind in ("Reflection", "Replication", "Circular", "Zero"):
            c.case(f"{kind}Pad{d}d", in_rank(f"{kind}Pad")(frame), small)
        c.case(f"ConstantPad{d}d", in_rank("ConstantPad")(frame, 2.5), small)
        c.case(f"BatchNorm{d}d", in_rank("BatchNorm")(4, eps=0.01, momentum=0.3), x[d])
        c.case(f"InstanceNorm{d}d", in_rank("InstanceNorm")(4, eps=0.01, affine=True), x[d])
    c.case("FractionalMaxPool2d",
           nn.FractionalMaxPool2d((2, 3), output_size=(3, 2),
                                  _random_samples=few_digits(torch.linspace(0.1, 0.9, 8)).reshape(1, 4, 2)), x[2])  # fmt: skip
    c.case("FractionalMaxPool3d",
           nn.FractionalMaxPool3d(2, output_ratio=0.7,
                                  _random_samples=few_digits(torch.linspace(0.1, 0.9, 12)).reshape(1, 4, 3)),
           normal(1, 4, 5, 4, 5))  # fmt: skip
    c.case("Fold", nn.Fold((4, 3), (2, 2), padding=1, stride=(2, 1)), normal(1, 8, 12))
    c.case("Unfold", nn.Unfold((2, 3), dilation=2, padding=1, stride=2), x[2])
    c.case("Upsample", nn.Upsample(scale_factor=1.5, mode="bilinear", align_corners=True), x[2])
    c.case("PixelShuffle", nn.PixelShuffle(2), x[2])
    c.case("PixelUnshuffle", nn.PixelUnshuffle(2), normal(1, 2, 4, 2))
    c.case("LayerNorm", nn.LayerNorm([4, 5], eps=0.01), x[1])
    c.case("RMSNorm", nn.RMSNorm(5, eps=0.01), x[1])
    c.case("GroupNorm", nn.GroupNorm(2, 4, eps=0.01), x[2])
    c.case("LocalResponseNorm", nn.LocalResponseNorm(2, 0.5, 0.6, 1.5), x[2])
    c.case("CrossMapLRN2d", nn.CrossMapLRN2d(3, 0.5, 0.6, 1.5), normal(1, 4, 2, 2))
    tokens = torch.tensor([[1, 0, 2], [2, 3, 1]])
    c.case("Embedding", nn.Embedding(4, 3, padding_idx=2, scale_grad_by_freq=True), tokens)
    c.case("EmbeddingBag", nn.EmbeddingBag(4, 3, mode="sum", padding_idx=2), tokens)
    c.case("Sequential", nn.Sequential(nn.Linear(5, 3), nn.ReLU(), nn.Linear(3, 2)), x[1])
    c.case("AdaptiveLogSoftmaxWithLoss",
           nn.AdaptiveLogSoftmaxWithLoss(6, 8, [2, 5], div_value=2.0, head_bias=True), normal(5, 6),
           torch.tensor([7, 0, 3, 1, 4]), result=lambda y: torch.cat([y.output, y.loss.reshape(1)]))  # fmt: skip


def sequences(c):
    x = normal(4, 2, 3)
    first = lambda y: y[0]  # noqa: E731
    c.case("RNN", nn.RNN(3, 2, num_layers=2, nonlinearity="relu"), x, result=first)
    c.case("GRU", nn.GRU(3, 2, bidirectional=True), x, result=first)
    c.case("LSTM", nn.LSTM(3, 4, proj_size=2, bias=False), x, result=first)
    c.case("RNNCell", nn.RNNCell(3, 2, nonlinearity="relu"), x[0], normal(2, 2))
    c.case("GRUCell", nn.GRUCell(3, 2), x[0], normal(2, 2))
    c.case("LSTMCell", nn.LSTMCell(3, 2), x[0], result=first)
    words = normal(4, 2, 6)
    c.case("MultiheadAttention", nn.MultiheadAttention(6, 2, kdim=3, vdim=5, add_bias_kv=True), words, x,
           normal(4, 2, 5), result=first)  # fmt: skip
    options = {"d_model": 6, "nhead": 2, "dim_feedforward": 5, "dropout": 0.2}
    encoder = nn.TransformerEncoderLayer(**options, activation="gelu")
    decoder = nn.TransformerDecoderLayer(**options, activation="gelu")
    # Left for torch's slow path, which has the gradients: dropout of 0 rather than evaluation.
    for module in (encoder, decoder):
        for part in module.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0
            if isinstance(part, nn.MultiheadAttention):
                part.dropout = 0.0
    memory = normal(3, 2, 6)
    c.case("TransformerEncoderLayer", encoder, words)
    c.case("TransformerDecoderLayer", decoder, words, memory)
    c.case("TransformerEncoder", nn.TransformerEncoder(encoder, 2, nn.LayerNorm(6)), words)
    c.case("TransformerDecoder", nn.TransformerDecoder(decoder, 2), words, memory)
    c.case("Transformer", nn.Transformer(6, 2, 1, 1, 5, 0.0), memory, words)


def make():
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    c = Cases()
    for family in (activations, losses, layers, sequences):
        family(c)
    c.out.write()
    torch.set_default_dtype(torch.float32)
