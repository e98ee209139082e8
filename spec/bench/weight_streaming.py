"""Weight streaming in PyTorch with the lifetimes written by hand: the peer of spec/bench/weight-streaming.ts.

32 layers of y = relu(x @ w), w 8192 x 8192 bf16 in pinned host memory, x 6144 x 8192 bf16 resident on the device.
A slice of the last y is downloaded each step on a stream of its own. Values by the integer formula of
spec/bench/stream-values.ts, so that outputs can be compared. With --json one JSON object on standard output; with
--out FILE the downloaded slice (bf16 bits) of the last step is written to FILE.
"""

import argparse
import json
import statistics
import sys
import time

import torch

MASK = 0xFFFFFFFF
MIB = 2**20


def values(count, seed, scale):
    """bf16 of (2 k - 255) / 256 * scale, k the top byte of a hash of the index. Exact for a power of two."""
    h = torch.arange(seed, seed + count, dtype=torch.int64, device="cuda")
    h = (h * 0x9E3779B1) & MASK
    h = h ^ (h >> 15)
    h = (h * 0x85EBCA77) & MASK
    h = h ^ (h >> 13)
    k = h >> 24
    return ((2 * k - 255).to(torch.float32) * (scale / 256)).to(torch.bfloat16)


def pinned_weights(args):
    base = values(args.width * args.width, 0, 2.0**-5 if args.width == 8192 else (6.0 / args.width) ** 0.5)
    weights = []
    for layer in range(args.layers):
        w = torch.empty(args.width, args.width, dtype=torch.bfloat16, pin_memory=True)
        w.copy_(torch.roll(base, -layer * args.shift).view(args.width, args.width))
        weights.append(w)
    return weights


class Step:
    """What every variant shares: the streams, the download of the slice, and two pinned slots for it."""

    def __init__(self, x, weights, args):
        self.x, self.weights, self.args = x, weights, args
        self.main, self.copy, self.out = (torch.cuda.Stream() for _ in range(3))
        size = (args.slice, args.width)
        self.slots = [torch.empty(*size, dtype=torch.bfloat16, pin_memory=True) for _ in range(2)]
        self.ticks = 0

    def download(self, y):
        done = torch.cuda.Event()
        done.record(self.main)
        self.out.wait_event(done)
        with torch.cuda.stream(self.out):
            self.slots[self.ticks % 2].copy_(y[: self.args.slice], non_blocking=True)
        read = torch.cuda.Event()
        read.record(self.out)
        # y goes back to the pool of `main`, so its next writer must come after the download.
        self.main.wait_event(read)
        self.ticks += 1


class OneStream(Step):
    def __call__(self):
        with torch.cuda.stream(self.main):
            y = self.x
            for w in self.weights:
                y = (y @ w.to("cuda", non_blocking=True)).relu_()
        self.download(y)


class RecordStream(Step):
    def __call__(self):
        y = self.x
        for w in self.weights:
            with torch.cuda.stream(self.copy):
                device = w.to("cuda", non_blocking=True)
                ready = torch.cuda.Event()
                ready.record(self.copy)
            self.main.wait_event(ready)
            with torch.cuda.stream(self.main):
                device.record_stream(self.main)
                y = (y @ device).relu_()
            del device
        self.download(y)


class Stash(Step):
    """By hand: weights come from the allocator; a stash keeps each until the copy stream waits for its reader."""

    def __init__(self, x, weights, args, buffers):
        super().__init__(x, weights, args)
        self.buffers, self.stash = buffers, []

    def __call__(self):
        y = self.x
        for w in self.weights:
            while len(self.stash) >= self.buffers:
                _, read = self.stash.pop(0)
                self.copy.wait_event(read)
                del _  # safe: the block's next owner is the copy stream, which waits for the reader
            with torch.cuda.stream(self.copy):
                device = w.to("cuda", non_blocking=True)
                ready = torch.cuda.Event()
                ready.record(self.copy)
            self.main.wait_event(ready)
            with torch.cuda.stream(self.main):
                product = y @ device
                read = torch.cuda.Event()
                read.record(self.main)
                y = product.relu_()
            self.stash.append((device, read))
            del device, product
        self.download(y)


class Preallocated(Step):
    """By hand: a ring of weight buffers and two activations made once, an event a weight buffer each way.

    No step allocates memory.
    """

    def __init__(self, x, weights, args, buffers):
        super().__init__(x, weights, args)
        with torch.cuda.stream(self.copy):
            self.ring = [torch.empty_like(weights[0], device="cuda") for _ in range(buffers)]
        with torch.cuda.stream(self.main):
            self.activations = [torch.empty_like(x) for _ in range(2)]
        self.ready = [torch.cuda.Event() for _ in range(buffers)]
        self.read = [torch.cuda.Event() for _ in range(buffers)]
        self.turn = 0

    def __call__(self):
        y = self.x
        for w in self.weights:
            i = self.turn % len(self.ring)
            self.turn += 1
            self.copy.wait_event(self.read[i])
            with torch.cuda.stream(self.copy):
                self.ring[i].copy_(w, non_blocking=True)
                self.ready[i].record(self.copy)
            self.main.wait_event(self.ready[i])
            with torch.cuda.stream(self.main):
                product = torch.mm(y, self.ring[i], out=self.activations[self.turn % 2])
                self.read[i].record(self.main)
                y = product.relu_()
        self.download(y)


def measure(name, make, args):
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    free_before = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved()
    step = make()
    for _ in range(args.warm):
        step()
    torch.cuda.synchronize()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(args.steps + 1)]
    cpu = []
    marks[0].record(step.main)
    began = time.perf_counter()
    for i in range(args.steps):
        issued = time.perf_counter()
        step()
        cpu.append((time.perf_counter() - issued) * 1e3)
        marks[i + 1].record(step.main)
    torch.cuda.synchronize()
    wall = (time.perf_counter() - began) * 1e3 / args.steps
    steps = sorted(a.elapsed_time(b) for a, b in zip(marks, marks[1:]))
    synced = []
    for _ in range(args.steps):
        issued = time.perf_counter()
        step()
        torch.cuda.synchronize()
        synced.append((time.perf_counter() - issued) * 1e3)
    reserved = torch.cuda.max_memory_reserved()
    used = free_before - torch.cuda.mem_get_info()[0]
    row = {
        "variant": name,
        "stepMs": statistics.median(steps),
        "stepMsMin": steps[0],
        "stepMsP90": steps[int(0.9 * (len(steps) - 1))],
        "wallMs": wall,
        "syncedMs": statistics.median(synced),
        "cpuMs": statistics.median(cpu),
        "peakAllocatedMiB": torch.cuda.max_memory_allocated() / MIB,
        "peakReservedMiB": reserved / MIB,
        "outsideMiB": max(0, used - torch.cuda.memory_reserved()) / MIB,
    }
    line = f"  {name:24s} {row['stepMs']:8.2f} ms a step, {row['peakReservedMiB']:8.1f} MiB reserved"
    print(line, file=sys.stderr)
    return row, step.slots[(step.ticks - 1) % 2].clone()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--width", type=int, default=8192)
    parser.add_argument("--rows", type=int, default=6144)
    parser.add_argument("--slice", type=int, default=4)
    parser.add_argument("--shift", type=int, default=2_000_003)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm", type=int, default=3)
    parser.add_argument("--out")
    args = parser.parse_args()
    weights = pinned_weights(args)
    x = values(args.rows * args.width, 0x40000000, 1.0).view(args.rows, args.width).cpu()
    torch.cuda.empty_cache()  # x would otherwise keep one of the larger segments of `values` reserved
    x = x.cuda()
    torch.cuda.synchronize()
    variants = [
        ("one stream", lambda: OneStream(x, weights, args)),
        ("stash, 2 buffers", lambda: Stash(x, weights, args, 2)),
        ("stash, 3 buffers", lambda: Stash(x, weights, args, 3)),
        ("preallocated, 2 buffers", lambda: Preallocated(x, weights, args, 2)),
        ("preallocated, 3 buffers", lambda: Preallocated(x, weights, args, 3)),
        ("record_stream", lambda: RecordStream(x, weights, args)),
    ]
    rows, last = [], None
    for name, make in variants:
        row, output = measure(name, make, args)
        reference = last if last is not None else output
        row["maxDifference"] = (output.float() - reference.float()).abs().max().item()
        last = reference
        rows.append(row)
    if args.out:
        with open(args.out, "wb") as file:
            file.write(last.contiguous().view(torch.int16).numpy().tobytes())
    report = {"torch": torch.__version__, "device": torch.cuda.get_device_name()}
    report |= {"steps": args.steps, "rows": rows}
    print(json.dumps(report) if args.json else json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
