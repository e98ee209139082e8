"""What PyTorch takes to launch a CUDA graph of many small kernels: the peer of graph-launches.ts.

    python3 graph_replay.py NODES LAUNCHES REPEATS

Microseconds of one `replay()`, of LAUNCHES in a row on an idle device, REPEATS times: a JSON list.
"""

import json
import sys
import time

import torch

nodes, launches, repeats = (int(word) for word in sys.argv[1:4])
value = torch.ones(1, dtype=torch.int32, device="cuda")
graph = torch.cuda.CUDAGraph()
torch.cuda.synchronize()
with torch.cuda.graph(graph):
    for _ in range(nodes):
        value.zero_()


def replays():
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(launches):
        graph.replay()
    return (time.perf_counter() - began) / launches * 1e6


replays()
print(json.dumps([replays() for _ in range(repeats)]))
