"""The first command of a session: is it right? The parts, the most important first."""
import dataclasses
import json
import os
import pathlib
import sys

from gpu_parts import kernel_tests
from gpu_parts.process import OutOfTime
from gpu_parts.ranks import PIPELINE, STAGE, TENSOR, describe
from gpu_parts.report import Failure, Skipped
from gpu_parts.session import last_lines
from gpu_parts.training import first_difference, small_config, train, with_changes


@dataclasses.dataclass
class Part:
    name: str
    what: str
    limit: int  # seconds
    function: object
    on_fake_device: bool = True


def card(session):
    """What the libraries and the driver say; the details are in first-device.json."""
    libraries = {name.split(".so")[0].removeprefix("lib"): path for name, path in session.libraries.found.items() if path}
    if session.libraries.cudnn:
        libraries["cudnn"] = session.libraries.cudnn
    found = {}

    def take(line):
        if line.startswith("{"):
            fact = json.loads(line)
            found[fact["name"]] = fact["value"]
            session.record.append("first-device.json", line)
            if fact["name"] != "cuDNN's device properties":
                session.record.figure("card", fact["name"], fact["value"])

    program = pathlib.Path(__file__).with_name("device_facts.py")
    ended = session.run_lines([sys.executable, program, *(f"{name}={path}" for name, path in libraries.items())], "facts", 30, take)
    if session.gpu:
        query = "clocks.max.sm,clocks.max.mem,power.limit,ecc.mode.current,mig.mode.current,pcie.link.gen.max,pcie.link.width.max,temperature.gpu"
        code, output = session.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv"], "nvidia-smi", 15)
        for name, value in zip(*(line.split(", ") for line in output.strip().splitlines()[:2])) if code == 0 else ():
            session.record.figure("card", f"nvidia-smi {name}", value)
    if ended.how != "ended" or ended.code != 0:
        raise Failure(f"after {len(found)} facts: {ended.describe()}: {last_lines(ended.output)}")
    return f"{len(found)} facts"


FEW_CTAS, MANY_CTAS = "NCCL_MIN_CTAS", "NCCL_MAX_CTAS"
CTAS = 32  # of each communicator, so that several of them do not fit onto the card at once


def shared_layouts():
    """Yields (model, reproducible, ranks, changes, how kernels are loaded)."""
    layouts = [("llama", "run", 2, {PIPELINE: 2}), ("gpt", "layout", 2, {TENSOR: 2}), ("llama", "layout", 4, {PIPELINE: 2, STAGE: 1}),
               ("gpt", "layout", 4, {TENSOR: 2, STAGE: 3})]
    for layout in layouts:
        yield *layout, "EAGER"
    for layout in (layouts[0], layouts[3]):
        yield *layout, "LAZY"


SECONDS_OF_A_LAYOUT = 25  # a layout that takes longer hangs


def shared_gpu(session):
    """Ranks that share the GPU, with as many CTAs as they ever use at the same time: none of them may wait for ever."""
    references, problems, cut = {}, [], []
    layouts = list(shared_layouts())[:2] if session.shim else list(shared_layouts())
    for number, (model, reproducible, count, changes, loading) in enumerate(layouts):
        name = f"{describe(model, reproducible, count, changes)}, {loading.lower()} loading"
        if session.left() < 4:
            session.record.figure("shared GPU", name, "not begun")
            cut.append(name)
            continue
        config = small_config(session, model, training__steps=2 if session.shim else 4, reproducible=reproducible)
        environment = {FEW_CTAS: CTAS, MANY_CTAS: CTAS, "CUDA_MODULE_LOADING": loading}
        try:
            if (model, reproducible) not in references:
                references[model, reproducible] = train(session, config, f"{model}-{reproducible}-1")
            limit = min(SECONDS_OF_A_LAYOUT * session.args.patience, session.left())
            run = train(session, with_changes(config, changes), f"shared-{number}", ranks=count, limit=limit, **environment)
            step = first_difference(run, references[model, reproducible])
            result = "equal bits" if step is None else f"differs from step {step}"
        except Failure as failure:
            result = str(failure)
        except OutOfTime:
            result = f"did not end within {limit:.0f} s"
        session.record.figure("shared GPU", name, result)
        if result != "equal bits":
            problems.append(f"{name}: {result}")
    if problems:
        raise Failure("; ".join(problems))
    if cut:
        session.cut(f"{len(cut)} of {len(layouts)} layouts were not begun")
    return f"{len(layouts)} layouts give the bits of one rank, with {CTAS} CTAs"


def see_torch(session):
    """Raises Skipped if there is no PyTorch that can be used here. It brings its own CUDA libraries."""
    see = "import torch, sys; print(torch.__version__, torch.backends.cudnn.version()); sys.exit(%s)" % \
        ("0" if session.shim else "not torch.cuda.is_available()")
    ended = session.run_lines([session.args.python, "-c", see], "torch", 60, **without_libraries(session))
    if ended.how != "ended" or ended.code != 0:
        raise Skipped(f"{session.args.python} has no PyTorch{'' if session.shim else ' that sees the GPU'}; name another Python with --python")
    return ended.output.split()


def without_libraries(session):
    return {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}


def attention_of_pytorch(session):
    """cuDNN's and flash attention in PyTorch, on the shapes of attention_bench."""
    version, cudnn = (see_torch(session) + ["none"])[:2]
    session.record.figure("attention of PyTorch", "version", version)
    session.record.figure("attention of PyTorch", "cuDNN of PyTorch", cudnn)
    count = [0]

    def take(line):
        if line.startswith("{"):
            figure = json.loads(line)
            count[0] += 1
            session.record.figure("attention of PyTorch", figure["name"], figure["value"], figure["unit"])

    command = [session.args.python, "bench/cuda/pytorch_attention.py", *(["--device", "cpu", "--tiny"] if session.shim else [])]
    ended = session.run_lines(command, "attention", None, take, 40, **without_libraries(session))
    if ended.how == "limit":
        session.cut(f"{count[0]} figures, then the time was over")
    if ended.how != "ended" or ended.code != 0:
        raise Failure(f"after {count[0]} figures: {ended.describe()}: {last_lines(ended.output)}")
    return f"{count[0]} figures"


PARTS = [
    Part("card", "card, driver, versions of the libraries, properties of the device", 15, card),
    Part("kernels", "tests of all kernels, first those that no GPU has run yet", 75, kernel_tests.kernels),
    Part("sanitizers: never launched", "memcheck and racecheck of what no GPU has run yet", 45, kernel_tests.sanitize_never_launched),
    Part("shared GPU", "4 layouts of ranks that share the GPU with 32 CTAs, 2 also without eager loading", 70, shared_gpu),
    Part("sanitizers: not on record", "memcheck and racecheck of what was changed since a GPU has run it", 45, kernel_tests.sanitize_not_on_record),
    Part("attention of PyTorch", "cuDNN's and flash attention: 6 shapes, forward and backward, deterministic or not", 40, attention_of_pytorch),
]
