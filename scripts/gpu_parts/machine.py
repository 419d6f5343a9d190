"""The GPU, the CUDA toolkit and the packages of this machine."""
import dataclasses
import datetime
import os
import pathlib
import platform
import re
import shutil
import site
import subprocess
import sys

# The libraries that the backend is linked with, as in cmake/TrivetCuda.cmake, and a header of each.
LIBRARIES = {"cudart": "cuda_runtime.h", "cublas": "cublas_v2.h", "cublasLt": "cublasLt.h", "nccl": "nccl.h"}
SYSTEM_LIBRARIES = [pathlib.Path(path) for path in ("/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib64", "/lib64", "/usr/lib")]


@dataclasses.dataclass
class Gpu:
    name: str
    capability: str  # "9.0"
    memory_mib: int
    driver: str

    @property
    def architecture(self):
        """For CMAKE_CUDA_ARCHITECTURES: machine code of this GPU only."""
        return self.capability.replace(".", "") + "-real"


def find_gpu():
    """Returns the first usable GPU, or None."""
    if not shutil.which("nvidia-smi"):
        return None
    query = subprocess.run(["nvidia-smi", "--query-gpu=name,compute_cap,memory.total,driver_version", "--format=csv,noheader,nounits"],
                           capture_output=True, text=True, timeout=60)
    lines = query.stdout.strip().splitlines()
    if query.returncode != 0 or not lines:
        return None
    fields = [field.strip() for field in lines[0].split(",")]
    if len(fields) != 4 or not re.fullmatch(r"\d+\.\d+", fields[1]):
        return None
    return Gpu(fields[0], fields[1], int(fields[2]), fields[3])


def host_bytes():
    return next(int(line.split()[1]) << 10 for line in open("/proc/meminfo") if line.startswith("MemTotal"))


def facts(gpu, shim):
    cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.processor())
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                            cwd=pathlib.Path(__file__).parent) if shutil.which("git") else None
    return {
        "date": datetime.datetime.now().strftime("%Y-%m-%d %H:%M"),
        "commit": commit.stdout.strip() if commit and commit.returncode == 0 else "unknown",
        "gpu": "the fake device of tests/cuda/shim: says nothing about a GPU" if shim else
               f"{gpu.name}, compute capability {gpu.capability}, {gpu.memory_mib} MiB, driver {gpu.driver}",
        "host": f"{len(os.sched_getaffinity(0))} cores of {cpu}, {host_bytes() / 2**30:.0f} GiB, {platform.system()} {platform.release()}",
    }


def wheel_folders():
    """Returns where pip puts the parts of a CUDA toolkit: site-packages/nvidia/*; newer wheels share nvidia/cu13."""
    folders = {pathlib.Path(folder) for folder in [*sys.path, *site.getsitepackages(), site.getusersitepackages()] if folder}
    python = shutil.which("python3")
    if python:
        folders |= set(pathlib.Path(python).resolve().parent.parent.glob("lib/python3*/site-packages"))
        folders |= set(pathlib.Path(python).parent.parent.glob("lib/python3*/site-packages"))
    return sorted({found for folder in folders for found in folder.glob("nvidia/*") if found.is_dir()})


def toolkit_roots():
    """Returns folders with bin, include, lib of a toolkit, the best first."""
    roots = [pathlib.Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    if shutil.which("nvcc"):
        roots.append(pathlib.Path(shutil.which("nvcc")).resolve().parent.parent)
    roots += [pathlib.Path("/usr/local/cuda"), *sorted(pathlib.Path("/usr/local").glob("cuda-*"), reverse=True)]
    return list(dict.fromkeys(root for root in [*roots, *wheel_folders()] if root.is_dir()))


class Toolkit:
    """nvcc, and where headers and libraries are. Wheels have libraries only as libX.so.N; `links` has libX.so for the linker."""

    def __init__(self, nvcc, links):
        self.nvcc = nvcc
        self.links = links
        self.library_folders = []  # for running programs
        self.foreign_headers = []  # folders of headers outside nvcc's toolkit
        self.missing = []
        self.nccl = {}             # variables of cmake/FindNCCL.cmake
        roots = toolkit_roots()
        for name, header in LIBRARIES.items():
            self._find_library(name, roots)
            self._find_header(name, header, roots)

    @property
    def link_folders(self):
        return ([self.links] if self.links.is_dir() else []) + self.library_folders

    def _find_library(self, name, roots):
        places = [root / sub for root in roots for sub in ("lib64", "lib", "targets/x86_64-linux/lib")]
        for place in [*places, *SYSTEM_LIBRARIES]:
            found = sorted(place.glob(f"lib{name}.so*"))
            if not found:
                continue
            library = found[0]
            if library.name != f"lib{name}.so":
                library = link(self.links, f"lib{name}.so", library)
            if place not in self.library_folders:
                self.library_folders.append(place)
            if name == "nccl":
                self.nccl["NCCL_LIBRARY"] = library
            return
        self.missing.append(f"lib{name}.so")

    def _find_header(self, name, header, roots):
        own = [self.nvcc.resolve().parent.parent / sub for sub in ("include", "targets/x86_64-linux/include")]
        places = own + [root / sub for root in roots for sub in ("include", "targets/x86_64-linux/include")]
        for place in [*places, pathlib.Path("/usr/include")]:
            if not (place / header).exists():
                continue
            if place not in own and place != pathlib.Path("/usr/include") and place not in self.foreign_headers:
                self.foreign_headers.append(place)
            if name == "nccl":
                self.nccl["NCCL_INCLUDE_DIR"] = place
            return
        self.missing.append(header)


def link(folder, name, library):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.unlink(missing_ok=True)
    path.symlink_to(library.resolve())
    return path


def find_toolkit(build):
    """Returns None if there is no nvcc."""
    candidates = [pathlib.Path(os.environ["CUDACXX"])] if os.environ.get("CUDACXX") else []
    candidates += [root / "bin" / "nvcc" for root in toolkit_roots()]
    nvcc = next((path for path in candidates if path.is_file() and os.access(path, os.X_OK)), None)
    return Toolkit(nvcc, build / "links") if nvcc else None


class Packages:
    """A folder of unpacked packages. A link to a library that is not in the folder is replaced by one to this machine's library."""

    def __init__(self, folder, build):
        self.prefix = folder / "usr"
        self.links = build / "package_links"
        self.library_folders = [self.prefix / "lib" / "x86_64-linux-gnu"]
        for path in self.library_folders[0].glob("*.so"):
            if path.is_symlink() and not path.exists():
                self._repair(path)

    @property
    def link_folders(self):
        return ([self.links] if self.links.is_dir() else []) + self.library_folders

    def _repair(self, broken):
        stem, version = pathlib.Path(os.readlink(broken)).name.split(".so.", 1)  # libz, 1.2.13
        for place in [*self.library_folders, *SYSTEM_LIBRARIES]:
            found = sorted(place.glob(f"{stem}.so.{version.split('.')[0]}*"))
            if found:
                link(self.links, broken.name, found[0])
                return

    def cmake_options(self):
        return [f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DCMAKE_INCLUDE_PATH={self.prefix / 'include'};{self.prefix / 'include/x86_64-linux-gnu'}"]
