"""The part build."""
import os
import shutil

from gpu_parts.report import Failure
from gpu_parts.session import last_lines

TARGETS = ["trivet", "trivet_cuda", "test_gpu", "cuda_benches"]
SHIM_TARGETS = ["trivet", "trivet_cuda_shim"]


def build(session):
    configure(session)
    # With -k, a program that does not compile does not stop the build of the others.
    targets = SHIM_TARGETS if session.shim else TARGETS
    ninja = (session.build / "build.ninja").exists()
    command = ["cmake", "--build", session.build, "--parallel", session.args.jobs, "--target", *targets, "--", *(["-k", "0"] if ninja else ["-k"])]
    code, output = session.run(command, "build", **environment(session))
    if code != 0:
        errors = [line for line in output.splitlines() if "error:" in line or "error :" in line or ": error" in line]
        raise Failure(f"{len(errors)} errors; the first: {errors[0] if errors else last_lines(output)} (log: {session.log_path('build')})")
    warnings = sum("warning:" in line or "warning #" in line for line in output.splitlines())
    what = "the fake device" if session.shim else f"sm_{session.gpu.architecture.split('-')[0]}"
    return f"for {what}, {session.args.jobs} jobs, {warnings} warnings"


def configure(session):
    command = ["cmake", "-S", ".", "-B", session.build, "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG", "-DTRIVET_EXAMPLES=OFF", "-DTRIVET_INSTALL=OFF"]
    if not (session.build / "CMakeCache.txt").exists():
        command += ["-G", "Ninja" if shutil.which("ninja") else "Unix Makefiles"]
    if shutil.which("ccache"):
        command += [f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in (["CXX"] if session.shim else ["CXX", "CUDA"])]
    folders = []
    if session.packages:
        command += session.packages.cmake_options()
        folders += session.packages.link_folders
    if not session.shim:
        toolkit = session.toolkit
        if toolkit is None:
            raise Failure("there is no nvcc in CUDACXX, CUDA_HOME, PATH, /usr/local/cuda* or the wheels of this Python")
        if toolkit.missing:
            raise Failure(f"found nvcc ({toolkit.nvcc}), but not {', '.join(toolkit.missing)}: install the CUDA toolkit with NCCL")
        command += ["-DTRIVET_CUDA=ON", "-DTRIVET_BENCH=ON", f"-DCMAKE_CUDA_COMPILER={toolkit.nvcc}",
                    f"-DCMAKE_CUDA_ARCHITECTURES={session.gpu.architecture}"]
        command += [f"-D{key}={value}" for key, value in toolkit.nccl.items()]
        folders = toolkit.link_folders + folders
    command.append(f"-DCMAKE_LIBRARY_PATH={';'.join(str(folder) for folder in folders)}")
    code, output = session.run(command, "configure", **environment(session))
    if code != 0:
        errors = [line for line in output.splitlines() if "Error" in line or "Could NOT find" in line]
        raise Failure(f"cmake: {last_lines(chr(10).join(errors) or output)} (log: {session.log_path('configure')})")


def environment(session):
    """Passes headers that CMake's packages do not find to the compilers and to nvcc's host compiler, as system headers."""
    headers = [session.packages.prefix / "include"] if session.packages else []
    headers += session.toolkit.foreign_headers if session.toolkit else []
    # As in scripts/build: ccache keeps files with precompiled headers, and clones of the repository share them.
    cache = {"CCACHE_SLOPPINESS": "pch_defines,time_macros", "CCACHE_BASEDIR": os.environ.get("CCACHE_BASEDIR", os.getcwd()), "CCACHE_NOHASHDIR": 1}
    return {**cache, **({"CPLUS_INCLUDE_PATH": ":".join(str(folder) for folder in headers)} if headers else {})}
