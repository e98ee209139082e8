"""The bodies of the benches `models` and `libraries` in PyTorch: eager, compiled by torch.compile, and compiled and
captured into a CUDA graph; attention by each of its backends, eagerly and in a CUDA graph; convolutions by the best
algorithm that cuDNN has.

    python3 models.py JOBS

JOBS is JSON: `seconds` and `jobs`, each a body as model-bodies.ts describes it, without its graph. JSON objects on
standard output, one a line: first the bandwidth of a copy of 512 MiB in bytes a second, then for each job, by way,
milliseconds a call (the median of five times, by events of the device), and the ends of the output as numbers.
"""

import json
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

run = json.loads(sys.argv[1])
dtypes = {"f32": torch.float32, "bf16": torch.bfloat16, "i32": torch.int32}
period = 2**20
torch.backends.cudnn.benchmark = True  # of convolutions alone: their algorithms are measured
torch.backends.cudnn.allow_tf32 = False
sampled = 4096


def values(weight):
    count = 1
    for size in weight["shape"]:
        count *= size
    h = (torch.arange(min(count, period), device="cuda") + weight["seed"]) * 0x9E3779B1 & 0xFFFFFFFF
    h ^= h >> 15
    h = h * 0x85EBCA77 & 0xFFFFFFFF
    h ^= h >> 13
    byte = h >> 24
    if weight["dtype"] == "i32":
        base = byte % int(weight["scale"]) + int(weight["plus"])
    else:
        base = (2 * byte.float() - 255) / 256 * weight["scale"] + weight["plus"]
        if weight["dtype"] == "bf16":  # the bits above, as the other side has them
            base = (base.view(torch.int32) & -65536).view(torch.float32)
    base = base.to(dtypes[weight["dtype"]])
    return base.repeat(-(-count // base.numel()))[:count].view(*weight["shape"]).contiguous()


def stepped(job, w):
    steps = {
        "add": lambda x, other: x + other,
        "mul": lambda x, other: x * other,
        "sub": lambda x, other: x - other,
        "tanh": lambda x, _: torch.tanh(x),
        "relu": lambda x, _: torch.relu(x),
        "sum": lambda x, _: x.sum(1),
        "total": lambda x, _: x.sum(),
        "columns": lambda x, _: x.sum(0),
        "softmax": lambda x, _: torch.softmax(x, -1),
        "layerNorm": lambda x, _: F.layer_norm(x, x.shape[-1:], w["b"], w["c"]),
        "columnSoftmax": lambda x, _: torch.softmax(x, 0),
        "batchNorm": lambda x, _: F.batch_norm(x, None, None, w["b"], w["c"], training=True),
        "rmsNorm": lambda x, _: F.rms_norm(x, x.shape[-1:], w["b"], 1e-5),
    }

    def call(x):
        for step in job["steps"]:
            name, *operand = step.split()
            other = None if not operand else w[operand[0]] if operand[0] in w else float(operand[0])
            x = steps[name](x, other)
        return x

    return call, w["x"]


def gpt(job, w):
    sizes = job["sizes"]
    batch, tokens, width, heads = (sizes[name] for name in ("batch", "tokens", "width", "heads"))

    def norm(x, name):
        return F.layer_norm(x, (width,), w[name + ".weight"], w[name + ".bias"])

    def product(x, name):
        return torch.addmm(w[name + ".bias"], x.view(batch * tokens, -1), w[name + ".weight"])

    def call(ids):
        x = F.embedding(ids, w["wte"]) + w["wpe"]
        for layer in range(sizes["layers"]):
            at = f"h.{layer}."
            qkv = product(norm(x, at + "ln_1"), at + "attn.c_attn").view(batch, tokens, 3 * width)
            q, k, v = (
                part.view(batch, tokens, heads, -1).transpose(1, 2) for part in qkv.split(width, 2)
            )
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            seen = seen.transpose(1, 2).reshape(batch, tokens, width)
            x = x + product(seen, at + "attn.c_proj").view(batch, tokens, width)
            hidden = F.gelu(product(norm(x, at + "ln_2"), at + "mlp.c_fc"), approximate="tanh")
            x = x + product(hidden, at + "mlp.c_proj").view(batch, tokens, width)
        return F.linear(norm(x, "ln_f"), w["wte"])

    return call, w["tokens"]


def training(job, w):
    """A step of gradient descent of the same; compiled are the loss and, by it, its gradients."""
    scores, ids = gpt(job, w)
    names = [name for name in w if name not in ("tokens", "targets")]
    for name in names:
        w[name].requires_grad_()

    def loss_of(ids):
        return F.cross_entropy(scores(ids).flatten(0, -2).float(), w["targets"].flatten().long())

    def step(loss_of):
        def call(ids):
            loss = loss_of(ids)
            gradients = torch.autograd.grad(loss, [w[name] for name in names])
            with torch.no_grad():
                torch._foreach_add_([w[name] for name in names], gradients, alpha=-job["sizes"]["rate"])
            return loss.detach()

        return call

    call = step(loss_of)
    call.compiled = step(torch.compile(loss_of, dynamic=False))
    return call, ids


def decode(job, w):
    sizes = job["sizes"]
    width, heads, cached = (sizes[name] for name in ("width", "heads", "cached"))
    shape = (1, heads, cached, width // heads)
    caches = [[torch.zeros(shape, dtype=torch.bfloat16, device="cuda") for _ in range(2)]
              for _ in range(sizes["layers"])]
    at = w["length"].long()
    seen_keys = (torch.arange(cached, device="cuda") <= at).view(1, 1, 1, cached)

    def norm(x, name):
        return F.layer_norm(x, (width,), w[name + ".weight"], w[name + ".bias"])

    def product(x, name):
        return torch.addmm(w[name + ".bias"], x, w[name + ".weight"])

    def call(ids):
        x = F.embedding(ids, w["wte"]) + F.embedding(at, w["wpe"])
        for layer, cache in enumerate(caches):
            h = f"h.{layer}."
            qkv = product(norm(x, h + "ln_1"), h + "attn.c_attn")
            q, k, v = (part.view(1, heads, 1, -1) for part in qkv.split(width, 1))
            for kept, new in zip(cache, (k, v)):
                kept.index_copy_(2, at, new)
            seen = F.scaled_dot_product_attention(q, *cache, attn_mask=seen_keys)
            x = x + product(seen.view(1, width), h + "attn.c_proj")
            hidden = F.gelu(product(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh")
            x = x + product(hidden, h + "mlp.c_proj")
        scores = F.linear(norm(x, "ln_f"), w["wte"])
        # The same token again, which is known when this one is.
        ids.copy_(ids + 0 * scores.argmax(1))
        return scores

    return call, w["tokens"]


def attended(job, w):
    shared = job["sizes"]["heads"] != job["sizes"]["groups"]
    return lambda q: F.scaled_dot_product_attention(
        q, w["k"], w["v"], is_causal=True, enable_gqa=shared
    ), w["q"]


def convolved(job, w):
    # Images whose channels lie last are views to PyTorch, of the memory format channels_last.
    sizes, last = job["sizes"], job["sizes"]["last"] == 1
    named, lying = ((0, 3, 1, 2), (0, 2, 3, 1)) if last else ((0, 1, 2, 3), (0, 1, 2, 3))
    kernel = w["w"].permute(named)
    return lambda x: F.conv2d(
        x.permute(named), kernel, stride=sizes["stride"], padding=sizes["padding"], groups=sizes["groups"]
    ).permute(lying), w["x"]


def by_backend(call, x):
    """Ways of attention: each backend that takes it."""
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        def chosen(x, backend=backend):
            with sdpa_kernel([backend]):
                return call(x)

        name = backend.name.split("_")[0].lower()
        yield name, lambda chosen=chosen: lambda: chosen(x)
        yield name + ", in a CUDA graph", lambda chosen=chosen: captured(chosen, x).replay


def milliseconds(call, seconds):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def times(count):
        begin.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / count

    times(3)
    count = max(5, int(seconds * 1e3 / times(5)))
    return sorted(times(count) for _ in range(5))[2]


def captured(call, x):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            call(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(x)
    return graph


def measured(job):
    weights = {name: values(weight) for name, weight in job["weights"].items()}
    kinds = {"gpt": gpt, "training": training, "decode": decode, "attention": attended, "conv": convolved}
    torch._dynamo.reset()
    call, x = kinds.get(job["kind"], stepped)(job, weights)
    compiled = getattr(call, "compiled", None) or torch.compile(call, dynamic=False)
    ways = []
    for way, made in by_backend(call, x) if job["kind"] == "attention" else (
        ("eager", lambda: lambda: call(x)),
        ("eager, in a CUDA graph", lambda: captured(call, x).replay),
        ("compiled", lambda: lambda: compiled(x)),
        ("compiled, in a CUDA graph", lambda: captured(compiled, x).replay),
    ):
        try:
            ways.append({"way": way, "ms": milliseconds(made(), run["seconds"])})
        except Exception as error:  # a way that fails is reported, and the others go on
            ways.append({"way": way, "error": str(error).splitlines()[0]})
    flat = call(x).flatten().float()
    ends = [flat[:sampled].tolist(), flat[-sampled:].tolist()]
    return {"ways": ways, "ends": ends}


def bandwidth():
    x = torch.ones(2**29, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    return 2**30 / milliseconds(lambda: y.copy_(x), 0.1) * 1e3


print(json.dumps({"torch": torch.__version__, "bandwidth": bandwidth()}), flush=True)
for job in run["jobs"]:
    with torch.inference_mode(job["kind"] != "training"):
        print(json.dumps(measured(job)), flush=True)
    torch.cuda.empty_cache()
