"""The second command of a session: how fast is it? The parts in their order; models take what the others leave."""
import json
import math
import re
import statistics
import time

from gpu_parts.first_command import Part, see_torch, without_libraries
from gpu_parts.process import OutOfTime
from gpu_parts.report import Failure, Skipped
from gpu_parts.session import last_lines
from gpu_parts.speed import MODELS, model_config, plan, utilization
from gpu_parts.training import train, with_changes

RATE = re.compile(r"^(?P<name>.+?) +(?P<us>[\d.]+) +(?P<rate>\d+) +(?P<share>\d+)%$")  # bandwidth_bench
PRODUCT = re.compile(r"^(?P<layer>\S+) +(?P<kind>\S.*?) {2,}(?P<first>[\d.]+) +(?P<best>[\d.]+)(?P<all>( +[\d.]+)*)$")  # matmul_bench


def figures_of(session, program, part, seconds):
    """Runs a benchmark that prints a JSON object a line."""
    count = [0]

    def take(line):
        if line.startswith("{"):
            figure = json.loads(line)
            count[0] += 1
            session.record.figure(part, figure["name"], figure["value"], figure["unit"])

    check(session.run_lines([session.program(f"bench/cuda/{program}")], program, seconds, take), session, program, f"{count[0]} figures")
    return f"{count[0]} figures"


def check(ended, session, what, done):
    if ended.how == "limit":
        session.cut(f"{what}: {done}, then the time was over")
    if ended.how != "ended" or ended.code != 0:
        raise Failure(f"{what}: after {done}: {ended.describe()}: {last_lines(ended.output)}")


def peaks(session):
    return figures_of(session, "peak_bench", "peaks", None)


def attention(session):
    return figures_of(session, "attention_bench", "attention", None)


def bandwidth(session):
    count = [0]

    def take(line):
        found = RATE.match(line)
        if found:
            count[0] += 1
            session.record.figure("bandwidth", found["name"], float(found["share"]), "% of a copy")
            session.record.append("second-bandwidth.tsv", "\t".join(found[key] for key in ("name", "us", "rate", "share")))

    check(session.run_lines([session.program("bench/cuda/bandwidth_bench")], "bandwidth_bench", None, take), session, "bandwidth_bench", f"{count[0]} kernels")
    return f"{count[0]} kernels"


# ---- Models

def larger(config):
    """The same batch in half as many microbatches, twice as large."""
    return with_changes(config, {"train_micro_batch_size_per_gpu": 2 * config["train_micro_batch_size_per_gpu"]})


def fits(session, config):
    """Whether the plan leaves 3 % of the device's memory free."""
    if session.shim:
        return True
    return plan(session, config)["memory_bytes"]["total"] <= 0.97 * (session.gpu.memory_mib << 20)


def variants(session, name):
    """Returns {"": config, ", larger microbatches": config if it fits}."""
    config = model_config(session, name)
    found = {"": config}
    if fits(session, larger(config)):
        found[", larger microbatches"] = larger(config)
    return found


def choices_file(session):
    return session.record.out / "second-choices.txt"


def tune(session):
    """matmul_bench --tune for each config by itself; the choices of all are in one file, which later parts use."""
    if session.shim:
        raise Skipped("the fake device's cuBLASLt has one algorithm")
    lines, texts = {}, []
    try:
        for name in MODELS:
            for variant, config in variants(session, name).items():
                texts.append(tune_one(session, f"{name}{variant}", config, lines))
                choices_file(session).write_text("\n".join(lines) + "\n")
    finally:
        if lines:
            choices_file(session).write_text("\n".join(lines) + "\n")
    return "; ".join(texts)


def tune_one(session, name, config, lines):
    """Adds the lines of the choices to `lines` (a dict that keeps its order)."""
    file, choices = session.work / "tune.json", session.work / "choices.txt"
    file.write_text(json.dumps(config))
    choices.unlink(missing_ok=True)
    first, best = [], []

    def take(line):
        found = PRODUCT.match(line)
        if found:
            first.append(float(found["first"]))
            best.append(float(found["best"]))
            session.record.append("second-products.tsv", "\t".join([name, found["layer"], found["kind"], found["first"], found["best"],
                                                                   " ".join(found["all"].split())]))

    ended = session.run_lines([session.program("bench/cuda/matmul_bench"), "--tune", choices, file], f"matmul_bench {name}", None, take)
    if choices.exists():
        lines.update(dict.fromkeys(line for line in choices.read_text().splitlines() if line))
    if first:
        session.record.figure("tune", f"{name}: slowest product, first algorithm", min(first), "TFLOP/s")
        session.record.figure("tune", f"{name}: fastest product, first algorithm", max(first), "TFLOP/s")
        session.record.figure("tune", f"{name}: fastest product, best algorithm", max(best), "TFLOP/s")
        gain = math.exp(statistics.fmean(math.log(b / f) for f, b in zip(first, best)))
        session.record.figure("tune", f"{name}: gain of the best algorithms, geometric mean", gain, "times")
    check(ended, session, f"matmul_bench {name}", f"{len(first)} products")
    return f"{name}: {len(first)} products"


STEPS, WARM_UP = 5, 2
# The most seconds of a run: one that takes longer hangs. PyTorch compiles in its first.
RUNS = {"untuned": 45, "PyTorch": 90, "tuned": 45, "tuned, larger microbatches": 45}


def runs_of(names):
    """Yields (round, model, kind): everything once, then a second time, what matters least last."""
    for name in names:
        for kind in RUNS:
            yield 1, name, kind
    for kinds in (list(RUNS)[:3], list(RUNS)[3:]):
        for name in names:
            for kind in kinds:
                yield 2, name, kind


def models(session):
    """A run for which there is not enough time is left out, and said."""
    rows, left_out, problems, seconds = {}, [], [], {}
    names = MODELS if not session.shim else MODELS[1:]
    planned = {name: plan(session, model_config(session, name)) for name in names}
    torch = has_torch(session)
    for round_number, name, kind in runs_of(names):
        label = f"{name}, {kind}"
        if label in problems or (kind == "PyTorch" and not torch) or (session.shim and round_number > 1):
            continue
        if session.left() < seconds.get(label, 8 * session.args.patience) + 1:
            left_out.append(f"{label}, round {round_number}")
            continue
        began = time.monotonic()
        try:
            speed = run_once(session, name, kind, round_number)
        except (Failure, OutOfTime) as problem:
            if session.left() < 1:  # not its fault
                left_out.append(f"{label}, round {round_number}")
                continue
            what = problem if isinstance(problem, Failure) else f"it did not end within {RUNS[kind]} s"
            session.record.figure("models", f"{label}, round {round_number}", f"failed: {what}")
            problems.append(label)
            continue
        if speed:
            rows.setdefault(label, []).append(speed)
        seconds[label] = time.monotonic() - began
    record_medians(session, rows, planned)
    if problems:
        raise Failure(f"these runs failed: {'; '.join(problems)}")
    if left_out:
        session.cut(f"not run: {'; '.join(left_out)}")
    return f"{sum(len(speeds) for speeds in rows.values())} runs" + ("" if torch else "; without PyTorch, which is not here")


def has_torch(session):
    try:
        return bool(see_torch(session))
    except Skipped as reason:
        session.record.figure("models", "PyTorch", f"not measured: {reason}")
        return False


def run_once(session, name, kind, round_number):
    """Returns tokens/s; None if this kind of run is not possible here."""
    config = with_changes(model_config(session, name), {"training__steps": WARM_UP + STEPS if not session.shim else 3})
    label = f"{name}, {kind}, round {round_number}"
    limit = min(session.left(), RUNS[kind] * session.args.patience)
    if kind == "PyTorch":
        speed, peak, loss = run_pytorch(session, name, config, limit)
    else:
        if "larger" in kind:
            if not fits(session, larger(config)):
                session.record.figure("models", label, "does not fit, by the plan")
                return None
            config = larger(config)
        environment = {}
        if kind.startswith("tuned") and not session.shim:
            if not choices_file(session).exists():
                session.record.figure("models", label, "not run: the part tune wrote no choices")
                return None
            environment["TRIVET_CUBLAS_TUNE"] = choices_file(session)
        run = train(session, config, label, limit=limit, **environment)
        speed, loss, (_, peak) = run.tokens_per_second(WARM_UP), run.losses[-1], run.memory()
    session.record.figure("models", label, speed, "tokens/s")
    session.record.append("second-models.tsv", "\t".join(str(value) for value in (name, kind, round_number, speed, peak, loss)))
    return speed


def run_pytorch(session, name, config, limit):
    file = session.work / "pytorch.json"
    file.write_text(json.dumps(config))
    steps = ["--steps", STEPS, "--warmup", WARM_UP] if not session.shim else ["--steps", 1, "--warmup", 1]
    how = "none" if session.shim else "whole" if name == "gpt2_124m" else "blocks"
    command = [session.args.python, "bench/cuda/pytorch_model.py", file, *steps, "--compile", how, "--device", "cpu" if session.shim else "cuda"]
    # What was compiled in the first round is used in the second.
    caches = {"TORCHINDUCTOR_CACHE_DIR": session.work / "inductor", "TRITON_CACHE_DIR": session.work / "triton"}
    code, output = session.run(command, f"PyTorch {name}", limit, **caches, **without_libraries(session))
    if code != 0:
        raise Failure(f"PyTorch: exit code {code}: {last_lines(output)}")
    result = json.loads(output.strip().splitlines()[-1])
    return result["tokens_per_second"], result["peak_mib"], result["loss"]


def record_medians(session, rows, plans):
    """Medians over the rounds, utilization, and how many times as fast as PyTorch. Runs no command: the time may be over."""
    for label, speeds in rows.items():
        name = label.split(",")[0]
        speed = statistics.median(speeds)
        session.record.figure("models", label, speed, "tokens/s")
        percent = 100 * utilization(speed, plans[name], model_config(session, name))
        session.record.figure("models", f"{label}: utilization", percent, "%")
        if not label.endswith("PyTorch") and f"{name}, PyTorch" in rows:
            session.record.figure("models", f"{label}: times PyTorch", speed / statistics.median(rows[f"{name}, PyTorch"]), "times")


# ---- The kernels of a step

# Classes of kernels for which a prediction exists: the first that matches.
CLASSES = [("attention forward", r"attention$"), ("attention backward", r"attention_backward"), ("products", r"matmul"),
           ("cross-entropy", r"cross_entropy|row_maxima|row_sums"), ("optimizer, norm of gradients, embedding", r"adam|embedding|sum_of_squares|judge|verdict|sum_losses"),
           ("element-wise, norms, biases", r"")]
LINE = re.compile(r"^(?P<kernel>\S+) +(?P<variant>\S+) +(?P<type>\S+) +(?P<sizes>\S+) +(?P<calls>[\d.]+) +(?P<us>[\d.]+) +(?P<ms>[\d.]+) +"
                  r"(?P<share>[\d.]+)% +(?P<rate>.+)$")


def class_of(kernel):
    return next(name for name, pattern in CLASSES if re.search(pattern, kernel))


def kernel_times(session):
    """`trivet bench step --kernels`: the time of every kernel of a step, and per token by class."""
    texts = []
    for name in MODELS if not session.shim else MODELS[:1]:
        config = model_config(session, name)
        file = session.work / f"kernels-{name}.json"
        file.write_text(json.dumps(config))
        sums, whole = {}, []

        def take(line):
            found = LINE.match(line)
            if found:
                sums[class_of(found["kernel"])] = sums.get(class_of(found["kernel"]), 0) + float(found["ms"])
                session.record.append("second-kernels.tsv", "\t".join([name, *found.groups()]))
            elif line.startswith("kernels "):
                whole.append(line)

        ended = session.run_lines([session.trivet, "bench", "step", file, "--ranks", "1", "--kernels", "--steps", 3 if not session.shim else 1],
                                  f"kernels of {name}", None, take)
        tokens = config["train_batch_size"] * config["model"]["sequence_length"]
        for kind, milliseconds in sums.items():
            session.record.figure("kernels of a step", f"{name}: {kind}", 1e3 * milliseconds / tokens, "us")
        check(ended, session, f"kernels of {name}", f"{len(sums)} classes")
        texts.append(f"{name}: {whole[0] if whole else 'no sum'}")
    return "; ".join(texts)


PARTS = [
    Part("peaks", "rates of a copy and of a large product", 15, peaks, False),
    Part("tune", "matmul_bench --tune: all algorithms of all products", 40, tune, False),
    Part("attention", "attention_bench", 15, attention, False),
    Part("kernels of a step", "the time of every kernel in a step of each model", 30, kernel_times),
    Part("models", "three models: untuned, beside PyTorch, tuned, with larger microbatches; two rounds", 225, models),
    Part("bandwidth", "bandwidth_bench", 25, bandwidth, False),
]
