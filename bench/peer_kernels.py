#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The peer of bench/bench_kernels: PyTorch's operation for a kernel, timed on request.

    peer_kernels.py [DEVICE]     a device of PyTorch; default cpu

Reads lines "THREADS CASE DTYPE R N K B" (kernels/cases/cases.def defines the sizes) and answers each with
the best of a few runs in seconds (on another device than the cpu, of runs put on its stream together), or "-" where PyTorch has nothing of the kind. Results go to tensors made
before the clock starts wherever PyTorch lets them. Ends at the end of its input; exit status 77 with the
reason without PyTorch.
"""
import sys
import time

try:
    import torch
except ImportError as error:
    print(f"no PyTorch: {error}", flush=True)
    sys.exit(77)

aten = torch.ops.aten
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


class Shapes:
    """Tensors of the sizes that a case names."""

    def __init__(self, dtype, r, n, k, b):
        self.dtype, self.r, self.n, self.k, self.b = DTYPES[dtype], r, n, k, b

    def x(self, *shape, dtype=None):
        return torch.randn(shape or (self.n,)).to(dtype or self.dtype)

    def rows(self, *_):
        return self.x(self.r, self.n)

    def ids(self, below):
        return torch.randint(below, (self.r,))


def elementwise(s, function):
    x, y = s.x(), s.x()
    return lambda: function(x, y)


def cast(s, dtype_from):
    x, y = s.x(dtype=DTYPES[dtype_from]), s.x()
    return lambda: y.copy_(x)


def softmax(s):
    x, y = s.rows(), s.rows()
    return lambda: aten._softmax.out(x, -1, False, out=y)


def cross_entropy(s):
    x, y, dx, t = s.rows(), s.rows(), s.rows(), s.ids(s.n)

    def run():
        aten._log_softmax.out(x, -1, False, out=y)
        loss, weight = aten.nll_loss_forward(y, t, None, 0, -100)
        dy = aten.nll_loss_backward(torch.full_like(loss, 0.1), y, t, None, 0, -100, weight)
        aten._log_softmax_backward_data.out(dy, y, -1, s.dtype, out=dx)

    return run


def mse(s):
    x, t = s.rows(), s.rows()
    scale = torch.tensor(0.1).to(s.dtype)

    def run():
        aten.mse_loss(x, t, 2)
        return aten.mse_loss_backward(scale, x, t, 2)

    return run


def layernorm(s):
    x, gamma, beta = s.rows(), s.x(), s.x()
    return lambda: aten.native_layer_norm(x, [s.n], gamma, beta, 1e-5)


def layernorm_backward(s, mask):
    x, dy, gamma, beta = s.rows(), s.rows(), s.x(), s.x()
    _, mean, rstd = aten.native_layer_norm(x, [s.n], gamma, beta, 1e-5)
    return lambda: aten.native_layer_norm_backward(dy, x, [s.n], mean, rstd, gamma, beta, mask)


def rmsnorm(s):
    x, gamma = s.rows(), s.x()
    return lambda: torch.nn.functional.rms_norm(x, [s.n], gamma, 1e-5)


def bias_backward(s):
    dy, db = s.rows(), s.x()
    return lambda: torch.sum(dy, 0, out=db)


def embedding(s):
    table, position, ids = s.x(s.k, s.n), s.x(s.b, s.n), s.ids(s.k)
    return lambda: torch.embedding(table, ids).view(-1, s.b, s.n).add_(position)


def embedding_backward(s):
    dy, ids = s.rows(), s.ids(s.k)
    return lambda: aten.embedding_dense_backward(dy, ids, s.k, -1, False)


def index_copy(s):
    x, y, index = s.rows(), s.x(s.r + 3, s.n), torch.arange(s.r + 2, 2, -1)
    return lambda: y.index_copy_(0, index, x)


def matmul(s):
    a, b, c = s.x(s.r, s.k), s.x(s.k, s.n), s.x(s.r, s.n)
    return lambda: torch.mm(a, b, out=c)


def attention(s):
    qkv = s.x(s.b, s.r, 3, s.k, s.n).permute(2, 0, 3, 1, 4)
    f = torch.nn.functional.scaled_dot_product_attention
    return lambda: f(qkv[0], qkv[1], qkv[2], is_causal=True)


def attention_backward(s):
    qkv = s.x(s.b, s.r, 3, s.k, s.n)
    dout = s.x(s.b, s.k, s.r, s.n)
    f = torch.nn.functional.scaled_dot_product_attention
    with torch.enable_grad():
        qkv.requires_grad_()
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        out = f(q, k, v, is_causal=True)
    return lambda: torch.autograd.grad(out, qkv, dout, retain_graph=True)


def norm(s, power):
    x = s.x()
    return lambda: torch.linalg.vector_norm(x, power)


def sgd(s):
    p, g, m = ([s.x()] for _ in range(3))
    return lambda: torch._fused_sgd_(p, g, m, weight_decay=0.1, momentum=0.9, lr=1e-9, dampening=0.5,
                                     nesterov=True, maximize=False, is_first_step=False)


def adam(s, function, amsgrad=False):
    p, g, m = ([s.x()] for _ in range(3))
    v, vmax = [s.x().abs_()], [s.x().abs_()] if amsgrad else []
    step = [torch.tensor(7.0)]
    return lambda: function(p, g, m, v, vmax, step, lr=1e-9, beta1=0.9, beta2=0.999, weight_decay=0.1,
                            eps=1e-8, amsgrad=amsgrad, maximize=False)


def adam_master(s):
    """fp32 masters: the 16-bit gradient is widened, and the new parameters are copied back."""
    grad, copy = s.x(), s.x()
    p, g, m = ([s.x(dtype=torch.float32)] for _ in range(3))
    v, step = [s.x(dtype=torch.float32).abs_()], [torch.tensor(7.0)]

    def run():
        g[0].copy_(grad)
        torch._fused_adamw_(p, g, m, v, [], step, lr=1e-9, beta1=0.9, beta2=0.999, weight_decay=0.1,
                            eps=1e-8, amsgrad=False, maximize=False)
        copy.copy_(p[0])

    return run


def unscale(s):
    g, found, inverse = [s.x()], torch.zeros(1), torch.tensor(0.999)
    return lambda: torch._amp_foreach_non_finite_check_and_unscale_(g, found, inverse)


def gelu(s, approximate):
    return elementwise(s, lambda x, y: aten.gelu.out(x, approximate=approximate, out=y))


def gelu_backward(s, approximate):
    x, dy, dx = s.x(), s.x(), s.x()
    return lambda: aten.gelu_backward.grad_input(dy, x, approximate=approximate, grad_input=dx)


def backward(s, function):
    x, dy, dx = s.x(), s.x(), s.x()
    return lambda: function(dy, x, dx)


def rows_backward(s, function):
    y, dy, dx = s.rows(), s.rows(), s.rows()
    return lambda: function(dy, y, dx)


OPERATIONS = {
    "fill": lambda s: elementwise(s, lambda x, y: y.fill_(0.1)),
    "scale": lambda s: elementwise(s, lambda x, y: torch.mul(x, 0.1, out=y)),
    "divide": lambda s: elementwise(s, lambda x, y: torch.div(x, 3.0, out=y)),
    "add": lambda s: backward(s, lambda a, b, y: torch.add(a, b, out=y)),
    "mul": lambda s: backward(s, lambda a, b, y: torch.mul(a, b, out=y)),
    "axpy": lambda s: elementwise(s, lambda x, y: y.add_(x, alpha=0.1)),
    "cast_from_f32": lambda s: cast(s, "f32"),
    "cast_from_f16": lambda s: cast(s, "f16"),
    "cast_from_bf16": lambda s: cast(s, "bf16"),
    "unscale": unscale,
    "relu": lambda s: elementwise(s, lambda x, y: torch.clamp_min(x, 0, out=y)),
    "relu_backward": lambda s: backward(
        s, lambda dy, y, dx: aten.threshold_backward.grad_input(dy, y, 0, grad_input=dx)),
    "gelu_tanh": lambda s: gelu(s, "tanh"),
    "gelu_tanh_backward": lambda s: gelu_backward(s, "tanh"),
    "gelu_erf": lambda s: gelu(s, "none"),
    "gelu_erf_backward": lambda s: gelu_backward(s, "none"),
    "silu": lambda s: elementwise(s, lambda x, y: aten.silu.out(x, out=y)),
    "silu_backward": lambda s: backward(
        s, lambda dy, x, dx: aten.silu_backward.grad_input(dy, x, grad_input=dx)),
    "sigmoid": lambda s: elementwise(s, lambda x, y: torch.sigmoid(x, out=y)),
    "sigmoid_backward": lambda s: backward(
        s, lambda dy, y, dx: aten.sigmoid_backward.grad_input(dy, y, grad_input=dx)),
    "tanh": lambda s: elementwise(s, lambda x, y: torch.tanh(x, out=y)),
    "tanh_backward": lambda s: backward(
        s, lambda dy, y, dx: aten.tanh_backward.grad_input(dy, y, grad_input=dx)),
    "dropout": lambda s: elementwise(s, lambda x, y: aten.native_dropout(x, 0.1, True)),
    "softmax": softmax,
    "softmax_backward": lambda s: rows_backward(
        s, lambda dy, y, dx: aten._softmax_backward_data.out(dy, y, -1, s.dtype, grad_input=dx)),
    "log_softmax": lambda s: rows_backward(
        s, lambda x, _, y: aten._log_softmax.out(x, -1, False, out=y)),
    "log_softmax_backward": lambda s: rows_backward(
        s, lambda dy, y, dx: aten._log_softmax_backward_data.out(dy, y, -1, s.dtype, out=dx)),
    "cross_entropy": cross_entropy,
    "mse": mse,
    "bias_backward": bias_backward,
    "layernorm": layernorm,
    "layernorm_backward": lambda s: layernorm_backward(s, [True, False, False]),
    "layernorm_backward_params": lambda s: layernorm_backward(s, [False, True, True]),
    "rmsnorm": rmsnorm,
    "glu_silu": lambda s: rows_backward(
        s, lambda g, u, y: torch.mul(aten.silu(g), u, out=y)),
    "embedding": embedding,
    "embedding_backward": embedding_backward,
    "index_copy": index_copy,
    "matmul": matmul,
    "attention": attention,
    "attention_backward": attention_backward,
    "normal": lambda s: elementwise(s, lambda x, y: y.normal_(0.5, 0.02)),
    "absmax": lambda s: norm(s, float("inf")),
    "bin_sum": lambda s: elementwise(s, lambda x, y: torch.sum(x)),
    "bin_sum_2": lambda s: norm(s, 2),
    "bin_sum_3": lambda s: norm(s, 3),
    "sgd": sgd,
    "adam": lambda s: adam(s, torch._fused_adam_),
    "adamw": lambda s: adam(s, torch._fused_adamw_),
    "adam_amsgrad": lambda s: adam(s, torch._fused_adam_, True),
    "adam_master": adam_master,
}


def seconds_of(run, sync, count):
    """Of one of `count` runs, put on the stream together."""
    start = time.perf_counter()
    for _ in range(count):
        run()
    sync()
    return (time.perf_counter() - start) / count


def best_of(run, device, budget_s=0.15, least=2, together_s=0.02):
    sync = getattr(torch, device.split(":")[0]).synchronize
    seconds_of(run, sync, 1)
    together = 1
    if device != "cpu":
        together = max(1, min(1000, int(together_s / seconds_of(run, sync, 1))))
    best, end, count = float("inf"), time.perf_counter() + budget_s, 0
    while count < least or time.perf_counter() < end:
        best, count = min(best, seconds_of(run, sync, together)), count + 1
    return best


def main():
    known, made = None, None
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    if device != "cpu" and not torch.cuda.is_available():
        print("PyTorch sees no GPU", flush=True)
        sys.exit(77)
    torch.set_default_device(device)
    print(torch.__version__, flush=True)
    for line in sys.stdin:
        threads, name, dtype, *sizes = line.split()
        torch.set_num_threads(int(threads))
        if line != known:
            known, made = line, None
            if name in OPERATIONS:
                try:
                    made = OPERATIONS[name](Shapes(dtype, *map(int, sizes)))
                    made()
                except (RuntimeError, NotImplementedError, AttributeError) as error:
                    print(f"peer_kernels: {name} {dtype}: {error}", file=sys.stderr)
                    made = None
        print("-" if made is None else best_of(made, device), flush=True)


if __name__ == "__main__":
    with torch.no_grad():
        main()
