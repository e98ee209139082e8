"""Weight streaming in PyTorch, with lifetimes written by hand: the peer of spec/bench/weight-streaming.ts.

32 layers of y = relu(x @ w), w 8192 x 8192 bf16 in pinned host memory, x 6144 x 8192 bf16 resident on the
device. A slice of the last y is downloaded each step on a stream of its own. At most --in-flight steps are
in flight, as many as Braid has ticks: before a step is issued, the host waits for the end of the step so
many before it. One more row shows `record_stream` where the host runs as far ahead as it gets. Events are
made once. Values by the integer formula of spec/bench/stream-values.ts, so that outputs can be compared.
With --json one JSON object on standard output; with --out FILE the downloaded slice (bf16 bits) of the last
step is written to FILE.

`peakReservedMiB` is what the caching allocator has taken from the device: the library's workspaces are in
it, the context, the modules and the library's handles are not. `deviceMiB` is all that the process has
taken, by nvidia-smi.
"""

import argparse
import json
import statistics
import subprocess
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
    """What every variant shares: streams, events, the download of the slice, and pinned slots for it."""

    def __init__(self, x, weights, args):
        self.x, self.weights, self.args = x, weights, args
        self.main, self.copy, self.out = (torch.cuda.Stream() for _ in range(3))
        size = (args.slice, args.width)
        turns = range(args.in_flight)
        self.slots = [torch.empty(*size, dtype=torch.bfloat16, pin_memory=True) for _ in turns]
        self.ready = [torch.cuda.Event() for _ in weights]
        self.done, self.sliced = torch.cuda.Event(), torch.cuda.Event()
        self.ends = [torch.cuda.Event() for _ in turns]
        self.ticks = 0

    def begin(self):
        """Waits until the slot of this step, and with it the step that had it before, has ended."""
        self.ends[self.ticks % len(self.ends)].synchronize()

    def download(self, y):
        slot = self.ticks % len(self.slots)
        self.done.record(self.main)
        self.out.wait_event(self.done)
        with torch.cuda.stream(self.out):
            self.slots[slot].copy_(y[: self.args.slice], non_blocking=True)
        self.sliced.record(self.out)
        # y goes back to the pool of `main`, so its next writer must come after the download.
        self.main.wait_event(self.sliced)
        self.ends[slot].record(self.main)
        self.ticks += 1


class OneStream(Step):
    def __call__(self):
        with torch.cuda.stream(self.main):
            y = self.x
            for w in self.weights:
                y = (y @ w.to("cuda", non_blocking=True)).relu_()
        self.download(y)


class RecordStream(Step):
    def __init__(self, x, weights, args, limited):
        super().__init__(x, weights, args)
        self.limited = limited

    def begin(self):
        if self.limited:
            super().begin()

    def __call__(self):
        y = self.x
        for w, ready in zip(self.weights, self.ready):
            with torch.cuda.stream(self.copy):
                device = w.to("cuda", non_blocking=True)
                ready.record(self.copy)
            self.main.wait_event(ready)
            with torch.cuda.stream(self.main):
                device.record_stream(self.main)
                y = (y @ device).relu_()
            del device
        self.download(y)


class Stash(Step):
    """By hand: weights of the allocator; a stash keeps each until the copy stream waits for its reader."""

    def __init__(self, x, weights, args, buffers):
        super().__init__(x, weights, args)
        self.buffers, self.stash = buffers, []
        self.read = [torch.cuda.Event() for _ in weights]

    def __call__(self):
        y = self.x
        for w, ready, read in zip(self.weights, self.ready, self.read):
            while len(self.stash) >= self.buffers:
                _, was_read = self.stash.pop(0)
                self.copy.wait_event(was_read)
                del _  # safe: the block's next owner is the copy stream, which waits for the reader
            with torch.cuda.stream(self.copy):
                device = w.to("cuda", non_blocking=True)
                ready.record(self.copy)
            self.main.wait_event(ready)
            with torch.cuda.stream(self.main):
                product = y @ device
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


def device_mib():
    """MiB in use on the first GPU by all processes, or NaN without nvidia-smi."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"]
    try:
        return float(subprocess.run(query, capture_output=True, text=True, check=True, timeout=20).stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return float("nan")


def measure(name, make, args, idle_mib):
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    step = make()
    for _ in range(args.warm):
        step.begin()
        step()
    torch.cuda.synchronize()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(args.steps + 1)]
    cpu = []
    marks[0].record(step.main)
    began = time.perf_counter()
    for i in range(args.steps):
        step.begin()
        issued = time.perf_counter()
        step()
        cpu.append((time.perf_counter() - issued) * 1e3)
        marks[i + 1].record(step.main)
    torch.cuda.synchronize()
    wall = (time.perf_counter() - began) * 1e3 / args.steps
    steps = sorted(a.elapsed_time(b) for a, b in zip(marks, marks[1:]))
    synced = []
    for _ in range(args.steps):
        step.begin()
        issued = time.perf_counter()
        step()
        torch.cuda.synchronize()
        synced.append((time.perf_counter() - issued) * 1e3)
    used = device_mib() - idle_mib
    row = {
        "variant": name,
        "stepMs": statistics.median(steps),
        "stepMsMin": steps[0],
        "stepMsP90": steps[int(0.9 * (len(steps) - 1))],
        "wallMs": wall,
        "syncedMs": statistics.median(synced),
        "cpuMs": statistics.median(cpu),
        "peakAllocatedMiB": torch.cuda.max_memory_allocated() / MIB,
        "peakReservedMiB": torch.cuda.max_memory_reserved() / MIB,
        "deviceMiB": used if used == used else None,
    }
    line = f"  {name:29s} {row['stepMs']:8.2f} ms a step, {row['peakReservedMiB']:8.1f} MiB reserved"
    print(line, file=sys.stderr)
    return row, step.slots[(step.ticks - 1) % len(step.slots)].clone()


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
    parser.add_argument("--in-flight", type=int, default=2)
    parser.add_argument("--out")
    args = parser.parse_args()
    idle_mib = device_mib()
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
        ("record_stream", lambda: RecordStream(x, weights, args, True)),
        ("record_stream, host unlimited", lambda: RecordStream(x, weights, args, False)),
    ]
    rows, last = [], None
    for name, make in variants:
        row, output = measure(name, make, args, idle_mib)
        reference = last if last is not None else output
        row["maxDifference"] = (output.float() - reference.float()).abs().max().item()
        last = reference
        rows.append(row)
    if args.out:
        with open(args.out, "wb") as file:
            file.write(last.contiguous().view(torch.int16).numpy().tobytes())
    report = {"torch": torch.__version__, "device": torch.cuda.get_device_name()}
    report |= {"steps": args.steps, "inFlight": args.in_flight, "rows": rows}
    print(json.dumps(report) if args.json else json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
