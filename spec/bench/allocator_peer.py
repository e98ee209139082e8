"""PyTorch's caching allocator from C++: the peer of spec/bench/allocator.ts and allocator-streaming.ts.

Builds allocator_peer.cu against the installed PyTorch with nvcc, once for each PyTorch, and runs it with the
arguments given here. One JSON object a line on standard output, the first about the machine.
"""

import glob
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
from torch.utils import cpp_extension


def compiler():
    home = cpp_extension.CUDA_HOME
    return shutil.which("nvcc") or os.path.join(home or "/usr/local/cuda", "bin", "nvcc")


def build(source):
    key = hashlib.sha256(source.read_bytes() + torch.__version__.encode()).hexdigest()[:16]
    folder = pathlib.Path(tempfile.gettempdir()) / f"braid-allocator-peer-{key}"
    program = folder / "allocator_peer"
    if program.exists():
        return program
    folder.mkdir(exist_ok=True)
    libraries = [os.path.join(os.path.dirname(torch.__file__), "lib")]
    # The runtime library that PyTorch itself loads: two of them in one process would be two runtimes.
    packages = __import__("nvidia").__path__
    runtimes = [path for part in packages for path in glob.glob(f"{part}/*/lib/libcudart.so*")]
    if runtimes:
        libraries.append(os.path.dirname(runtimes[0]))
    command = [compiler(), "-O2", "-std=c++20", "-arch=native", "--cudart=none", "-w"]
    command += ["-o", str(program) + ".new", str(source)]
    command += [f"-I{path}" for path in cpp_extension.include_paths("cuda")]
    command += [f"-L{path}" for path in libraries] + [f"-Xlinker=-rpath={path}" for path in libraries]
    # By its path: a file named for its version is no library to nvcc.
    command += ["-Xlinker=--no-as-needed", "-lc10", "-lc10_cuda"]
    command += [f"-Xlinker={runtimes[0]}"] if runtimes else ["-lcudart"]
    subprocess.run(command, check=True, stdout=sys.stderr)
    os.replace(str(program) + ".new", program)
    return program


def main():
    program = build(pathlib.Path(__file__).with_suffix(".cu"))
    device = torch.cuda.get_device_name(0)
    about = {"bench": "device", "case": device, "torch": torch.__version__, "from": "C++"}
    print(json.dumps(about), flush=True)
    sys.exit(subprocess.run([str(program), *sys.argv[1:]]).returncode)


if __name__ == "__main__":
    main()
