#!/usr/bin/env python3
"""Prints what the CUDA libraries say about themselves and about the first GPU, one JSON object a line: {"name": what, "value": value}.

  device_facts.py LIBRARY=PATH...     cudart, cublasLt, nccl, cudnn

Each line is written when it is known: a library that crashes or hangs loses only what comes after it.
"""
import ctypes
import json
import sys

# cudaDeviceAttr of driver_types.h
ATTRIBUTES = {
    "multiprocessors": 16, "clock, kHz": 13, "memory clock, kHz": 36, "memory bus, bits": 37, "L2 cache, bytes": 38,
    "compute capability, major": 75, "compute capability, minor": 76, "shared memory a multiprocessor, bytes": 81,
    "shared memory a block may ask for, bytes": 97, "shared memory that a block reserves, bytes": 111, "registers a multiprocessor": 82,
    "threads a multiprocessor": 39, "blocks a multiprocessor": 106, "engines for copies": 40, "L2 cache that may be kept, bytes": 108,
    "ECC": 32, "compute mode": 20, "memory pools": 115, "clusters": 120, "MPS": 133,
}
# cudnn_graph.h
CUDNN_DEVICEPROP_DESCRIPTOR, CUDNN_DEVICEPROP_DEVICE_ID, CUDNN_DEVICEPROP_JSON = 38, 2700, 2702
CUDNN_TYPE_INT32, CUDNN_TYPE_CHAR = 23, 24


def say(name, value):
    print(json.dumps({"name": name, "value": value}), flush=True)


def version_of(name, path):
    library = ctypes.CDLL(path)
    if name == "cudart":
        number = ctypes.c_int()
        library.cudaRuntimeGetVersion(ctypes.byref(number))
        say("CUDA runtime", f"{number.value // 1000}.{number.value % 1000 // 10}")
        library.cudaDriverGetVersion(ctypes.byref(number))
        say("CUDA of the driver", f"{number.value // 1000}.{number.value % 1000 // 10}")
    elif name == "cublasLt":
        library.cublasLtGetVersion.restype = ctypes.c_size_t
        number = library.cublasLtGetVersion()
        say("cuBLASLt", f"{number // 10000}.{number % 10000 // 100}.{number % 100}")
    elif name == "nccl":
        number = ctypes.c_int()
        library.ncclGetVersion(ctypes.byref(number))
        say("NCCL", f"{number.value // 10000}.{number.value % 10000 // 100}.{number.value % 100}")
    elif name == "cudnn":
        library.cudnnGetVersion.restype = ctypes.c_size_t
        number = library.cudnnGetVersion()
        say("cuDNN", f"{number // 10000}.{number % 10000 // 100}.{number % 100}")
    return library


def say_attributes(cudart):
    for name, attribute in ATTRIBUTES.items():
        value = ctypes.c_int()
        error = cudart.cudaDeviceGetAttribute(ctypes.byref(value), attribute, 0)
        say(name, value.value if error == 0 else f"CUDA error {error}")
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    error = cudart.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
    say("free memory, bytes", free.value if error == 0 else f"CUDA error {error}")
    say("memory, bytes", total.value if error == 0 else f"CUDA error {error}")


def say_cudnn_device(cudnn):
    """The device's properties in cuDNN's own JSON (9.8 or newer), from which a cuDNN without a GPU can plan."""
    descriptor = ctypes.c_void_p()

    def checked(what, status):
        if status != 0:
            raise RuntimeError(f"{what}: cuDNN status {status}")

    checked("create", cudnn.cudnnBackendCreateDescriptor(CUDNN_DEVICEPROP_DESCRIPTOR, ctypes.byref(descriptor)))
    device = ctypes.c_int32(0)
    checked("device", cudnn.cudnnBackendSetAttribute(descriptor, CUDNN_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, ctypes.c_int64(1), ctypes.byref(device)))
    checked("finalize", cudnn.cudnnBackendFinalize(descriptor))
    count = ctypes.c_int64()
    checked("size", cudnn.cudnnBackendGetAttribute(descriptor, CUDNN_DEVICEPROP_JSON, CUDNN_TYPE_CHAR, ctypes.c_int64(0), ctypes.byref(count), None))
    text = ctypes.create_string_buffer(count.value + 1)
    checked("text", cudnn.cudnnBackendGetAttribute(descriptor, CUDNN_DEVICEPROP_JSON, CUDNN_TYPE_CHAR, count, ctypes.byref(count), text))
    say("cuDNN's device properties", text.raw[:count.value].decode(errors="replace").rstrip("\0"))


def main():
    libraries = {}
    for argument in sys.argv[1:]:
        name, path = argument.split("=", 1)
        try:
            libraries[name] = version_of(name, path)
        except (OSError, AttributeError) as problem:
            say(name, f"cannot be used: {problem}")
    if "cudart" in libraries:
        say_attributes(libraries["cudart"])
    if "cudnn" in libraries:
        try:
            say_cudnn_device(libraries["cudnn"])
        except (RuntimeError, AttributeError) as problem:
            say("cuDNN's device properties", f"not available: {problem}")


if __name__ == "__main__":
    main()
