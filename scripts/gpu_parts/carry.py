"""The folder that is carried to a machine with a GPU: made where nvcc is, and what the programs in it need there."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import types

from gpu_parts import build as build_part
from gpu_parts import machine
from gpu_parts.report import Failure
from gpu_parts.session import Session

MOST_BYTES = 64 << 20
CAPABILITY = "9.0"  # sm_90: H100, H200
PROGRAMS = ["trivet", "libtrivet_cuda.so", "tests/cuda/gpu/test_gpu", "bench/cuda/attention_bench", "bench/cuda/bandwidth_bench",
            "bench/cuda/matmul_bench", "bench/cuda/peak_bench"]
SCRIPTS = ["scripts/gpu_check", "scripts/gpu_parts", "bench/cuda/configs", "bench/cuda/predictions.tsv", "bench/cuda/pytorch_model.py",
           "bench/cuda/pytorch_attention.py"]
DESCRIPTION = "session.json"  # of the folder, beside scripts/

# Libraries that every machine has; what is not here and not CUDA's travels along.
OF_THE_SYSTEM = re.compile(r"^(linux-vdso|ld-linux|libc|libm|libdl|libpthread|librt|libresolv|libgcc_s|libstdc\+\+)\b")
OF_CUDA = re.compile(r"^lib(cudart|cublas|cublasLt|nccl)\.so")
# How to get a library that is missing: the toolkit, or a package of wheels.
ADVICE = {"libcudart": "nvidia-cuda-runtime", "libcublas": "nvidia-cublas", "libcublasLt": "nvidia-cublas", "libnccl": "nvidia-nccl-cu13"}

RUN = """#!/usr/bin/env bash
# Unpacks the programs beside this file, once, and runs one of the two commands: run first|second [--out FOLDER] (docs/cuda.md)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
unpacked=$here/unpacked
if [ ! -f "$unpacked/session.json" ]; then
  mkdir -p "$unpacked" 2>/dev/null || unpacked=$(mktemp -d)
  python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$here/programs.tar.xz" "$unpacked"
fi
exec python3 "$unpacked/scripts/gpu_check" session "$@"
"""


def is_carried():
    return pathlib.Path(DESCRIPTION).exists()


def description():
    return json.loads(pathlib.Path(DESCRIPTION).read_text()) if is_carried() else {}


def built_from(build):
    known = description()
    return f"commit {known['commit']}, built {known['date']} with {known['nvcc']}" if known else f"of {build}"


def needed(build):
    """Names of the CUDA libraries that the programs were linked with: libcudart.so.13 ..."""
    if is_carried():
        return description()["cuda_libraries"]
    module = build / "libtrivet_cuda.so"
    return sorted(name for name in linked(module) if OF_CUDA.match(name)) if module.exists() else []


def linked(program, environment=None):
    """Returns {library: path or None} of a program, and of the libraries that it needs."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=60, env=environment)
    found = {}
    for line in done.stdout.splitlines():
        match = re.match(r"\s*(\S+) => (\S+|not found)", line)
        if match:
            found[match[1]] = None if match[2] == "not" or "not found" in line else pathlib.Path(match[2])
    return found


class Libraries:
    """Where this machine has the CUDA libraries that the programs need, and cuDNN, which only PyTorch uses."""

    def __init__(self, names, python):
        self.names = names
        self.found = {name: find_library(name, python) for name in names}
        self.cudnn = find_library("libcudnn.so.9", python)

    @property
    def folders(self):
        return list(dict.fromkeys(path.parent for path in self.found.values() if path))

    def facts(self):
        found = {name: str(path) if path else "not found" for name, path in self.found.items()}
        return {**found, "libcudnn.so.9": str(self.cudnn) if self.cudnn else "not found: cuDNN is not measured"}

    def problems(self):
        texts = []
        for name, path in self.found.items():
            if path is None:
                stem, version = name.split(".so.")
                texts.append(f"{name} was not found (in LD_LIBRARY_PATH, the toolkits in /usr/local/cuda*, the wheels of Python, the system): "
                             f"install the CUDA toolkit {version if stem != 'libnccl' else '13'} with NCCL, or the wheel {ADVICE.get(stem, stem)}, "
                             f"and run this again")
        return texts


def find_library(name, python):
    folders = [pathlib.Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    roots = machine.toolkit_roots() + wheels_of(python)
    folders += [root / sub for root in roots for sub in ("lib64", "lib", "targets/x86_64-linux/lib")]
    folders += machine.SYSTEM_LIBRARIES + sorted(pathlib.Path("/usr/local").glob("*/lib64"))
    return next((folder / name for folder in folders if (folder / name).exists()), None)


def wheels_of(python):
    """nvidia/* of the packages of another Python, which may have PyTorch."""
    folder = pathlib.Path(shutil.which(python) or python).absolute().parent.parent
    return sorted(path for path in folder.glob("lib/python3*/site-packages/nvidia/*") if path.is_dir())


def build(args):
    """Builds, strips and packs; returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="gpu_session-") as work:
        gpu = machine.Gpu("", CAPABILITY, 0, "")
        options = types.SimpleNamespace(build=args.build, shim=False, deps=args.deps, jobs=args.jobs, python=args.python)
        session = Session(options, gpu, pathlib.Path(work))
        session.start_part("build", 24 * 3600)
        try:
            print(build_part.build(session), flush=True)
            size = pack(session, args.folder, pathlib.Path(work))
        except Failure as failure:
            print(f"gpu_check session build: {failure}", file=sys.stderr)
            return 1
    print(f"{args.folder}: {size / (1 << 20):.1f} MiB; carry it to the machine with the GPU and run there\n"
          f"  {args.folder.name}/run first --out RESULTS\n  {args.folder.name}/run second --out RESULTS")
    return 0


def pack(session, folder, work):
    """Fills the folder with `run` and one archive; returns its size in bytes."""
    tree = work / "tree"
    programs = tree / "programs"
    cuda_libraries = copy_programs(session, programs)
    for name in SCRIPTS:
        source, target = pathlib.Path(name), tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)
    facts = machine.facts(machine.Gpu("", CAPABILITY, 0, ""), False)
    version = subprocess.run([session.toolkit.nvcc, "--version"], capture_output=True, text=True).stdout
    (tree / DESCRIPTION).write_text(json.dumps({"commit": facts["commit"], "date": facts["date"], "architecture": session.gpu.architecture,
                                                "nvcc": re.search(r"release [\d.]+", version)[0], "cuda_libraries": cuda_libraries}) + "\n")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "unpacked", ignore_errors=True)
    with tarfile.open(folder / "programs.tar.xz", "w:xz", preset=9) as archive:
        # The same kernels are in most programs. In this order they are near each other, so that they are stored once.
        for name in [*(f"programs/{name}" for name in PROGRAMS), "programs/lib", "scripts", "bench", DESCRIPTION]:
            archive.add(tree / name, name, filter=of_root)
    (folder / "run").write_text(RUN)
    (folder / "run").chmod(0o755)
    print_sizes(programs)
    size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    if size > MOST_BYTES:
        raise Failure(f"{folder} has {size / (1 << 20):.1f} MiB, more than {MOST_BYTES >> 20}")
    return size


def of_root(entry):
    """Unpacked by root, the files belong to root: Trivet loads no module of another user."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mode &= ~0o022
    return entry


def copy_programs(session, programs):
    """Copies programs and their libraries, stripped; returns the names of the CUDA libraries that they need."""
    carried, cuda = {}, set()
    for name in PROGRAMS:
        source, target = session.program(name), programs / name
        target.parent.mkdir(parents=True, exist_ok=True)
        strip(source, target)
        for library, path in linked(source, session.environment()).items():
            if OF_CUDA.match(library):
                cuda.add(library)
            elif not OF_THE_SYSTEM.match(library):
                carried[library] = path
    missing = [library for library, path in carried.items() if path is None]
    if missing:
        raise Failure(f"{', '.join(missing)} cannot be found here, so the folder would not be complete")
    (programs / "lib").mkdir(exist_ok=True)
    for library, path in carried.items():
        strip(path, programs / "lib" / library)
    return sorted(cuda)


def strip(source, target):
    done = subprocess.run(["strip", "--strip-unneeded", "-o", target, pathlib.Path(source).resolve()], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"strip {source}: {done.stderr.strip()}")


def print_sizes(programs):
    for path in sorted(programs.rglob("*")):
        if path.is_file():
            print(f"  {path.stat().st_size / (1 << 20):7.1f} MiB  {path.relative_to(programs)}")
