"""The parts that measure: bench, model, largest."""
import json
import pathlib
import re
import statistics

from gpu_parts import machine, process
from gpu_parts.report import Failure, Skipped
from gpu_parts.session import last_lines
from gpu_parts.training import Run, prepare, read_config, read_metrics, refused, small_config, tokens_file, train, with_changes

DENSE_BF16_FLOPS = 989e12  # of an H100 or H200 SXM, by its data sheet
UTILIZATION = ("model FLOPs utilization = (6 N + 6 L C T) x tokens/s / 989 TFLOP/s; N elements of the matrices that multiply each token "
               "(the head counts, the input embedding does not), L layers, C hidden size, T sequence length")
MODELS = ["gpt2_124m", "gpt2_1.5b", "llama_1b"]
HOST_BOUND = "gpt2_124m"  # its kernels are short, so the gain from launching them as one graph shows here
CONFIGS = pathlib.Path("bench/cuda/configs")


def utilization(tokens_per_second, planned, config):
    """`planned`: what `trivet plan --json` prints for the config. Its count of FLOPs is the only one (model/model.h)."""
    tokens_per_step = config["train_batch_size"] * config["model"]["sequence_length"]
    return planned["model_flops_per_step"] / tokens_per_step * tokens_per_second / DENSE_BF16_FLOPS


ROUNDS = 3
FUSED_TARGET = 0.90  # share of the copy bandwidth for a kernel that only moves memory


def bench(session):
    """Runs every program of bench/cuda without arguments. Programs that print one JSON object per line, {"name": what, "value": number,
    "unit": text} and further members, take turns for some rounds, and the medians are kept; of other programs the text is kept."""
    programs = sorted((session.build / "bench" / "cuda").glob("*_bench"))
    if not programs:
        raise Failure(f"{session.build}/bench/cuda has no benchmarks: run the part build")
    values, texts, problems = {}, {}, []
    for round_number in range(ROUNDS):
        for program in programs:
            if program.name in texts or (session.left() < 10 and round_number > 0):
                continue
            code, output = session.run([program], f"{program.name}-{round_number}", 60)
            if code != 0:
                problems.append(f"{program.name}: exit code {code}: {last_lines(output, 1)}")
                continue
            figures = list(json_lines(output))
            if not figures:
                texts[program.name] = output.splitlines()
            for figure in figures:
                values.setdefault((program.name, figure["name"]), []).append(figure)
    medians = [{"bench": program, **median_row(figures)} for (program, _), figures in values.items()]
    session.details["figures"] = medians
    session.details.update(texts)
    if problems:
        raise Failure("; ".join(dict.fromkeys(problems)))
    shares = [(row["share"], row["target"]) for row in medians if "target" in row]
    shares += [(share, FUSED_TARGET) for lines in texts.values() for share in shares_of(lines)]
    ceilings = [f"{row['name']} {row['value']:,.0f} {row['unit']}" for row in medians if row["bench"] == "peak_bench"]
    return f"{sum(share >= target for share, target in shares)} of {len(shares)} targets met; {', '.join(ceilings)}"


def median_row(figures):
    """Returns the medians of the numbers of one figure over the rounds; other members are those of the last round."""
    row = dict(figures[-1])
    for key, value in row.items():
        if isinstance(value, (int, float)):
            row[key] = statistics.median(figure[key] for figure in figures)
    values = [figure["value"] for figure in figures]
    return {**row, "rounds": len(figures), "least": min(values), "most": max(values)}


def json_lines(output):
    for line in output.splitlines():
        if line.startswith("{"):
            figure = json.loads(line)
            if "name" in figure and "value" in figure:
                yield figure


def shares_of(lines):
    """Reads a printed table: lines of kernels end with their share of the copy bandwidth, "93%"; the copies themselves do not count."""
    for line in lines:
        found = re.search(r"\s(\d+)%$", line)
        if found and "copy, " not in line and "Memcpy" not in line:
            yield int(found[1]) / 100


def plan(session, config):
    """Returns what `trivet plan --json` prints for one rank."""
    command, environment, _ = prepare(session, config)
    code, output = session.run([command[0], "plan", command[2], "--json"], "plan", 60, **environment)
    if refused(code, output):
        raise Skipped(refused(code, output))
    if code != 0:
        raise Failure(f"trivet plan: exit code {code}: {last_lines(output)}")
    return json.loads(output)


def model_config(session, name):
    """Returns a config of bench/cuda/configs with its tokens; on the fake device, that of a tiny model of the same kind."""
    if session.shim:
        return small_config(session, "llama" if name.startswith("llama") else "gpt")
    config = read_config(CONFIGS / f"{name}.json")
    vocabulary = config["model"]["vocabulary"]
    return with_changes(config, {"data__train": str(tokens_file(session, min(vocabulary, 50257), 1_000_000))})


def measure(session, name, config, planned_run, run_name):
    run = train(session, config, run_name)
    speed = run.tokens_per_second()
    planned, measured = run.memory()
    return {"model": name, "parameters": planned_run["parameters"], "tokens/s": speed, "utilization": utilization(speed, planned_run, config),
            "ms a step": 1e3 * statistics.median(run.seconds(min(3, len(run.steps) - 1))), "planned MiB": planned, "measured MiB": measured,
            "last loss": run.losses[-1]}


def model(session):
    rows, problems = [], []
    print(f"   {UTILIZATION}", flush=True)
    session.details["formula"] = UTILIZATION
    for name in MODELS:
        try:
            config = model_config(session, name)
            planned = plan(session, config)
            rows.append(measure(session, name, config, planned, name))
            if name == HOST_BOUND:
                without = with_changes(config, {"cuda_graph": "off"})
                rows.append(measure(session, f"{name} without graph", without, planned, f"{name}-without-graph"))
        except (Failure, process.OutOfTime) as problem:
            problems.append(f"{name}: {problem}")
    session.details["models"] = rows
    if problems:
        raise Failure("; ".join(problems))
    return "; ".join(f"{row['model']} {row['tokens/s']:,.0f} tokens/s {100 * row['utilization']:.1f} %" for row in rows)


def largest(session):
    """Searches the largest model that trains, with and without offload to host memory."""
    sizes, problems = [], []
    for where, changes in placements().items():
        if session.left() < 20:
            problems.append(f"offload {where}: no time left")
            continue
        try:
            sizes.append({"offload": where, **largest_with(session, where, changes)})
        except Skipped as reason:
            sizes.append({"offload": where, "largest parameters": 0, "note": str(reason)})
        except (Failure, process.OutOfTime) as problem:
            problems.append(f"offload {where}: {problem}")
    session.details["largest model"] = sizes
    if problems:
        raise Failure("; ".join(problems))
    return "; ".join(f"offload {row['offload']}: {row['largest parameters'] / 1e9:.2f} B" for row in sizes if row["largest parameters"])


def placements():
    host = {"zero_optimization__stage": 3, "zero_optimization__offload_optimizer__device": "cpu"}
    return {"none": {}, "optimizer": host, "optimizer and weights": {**host, "zero_optimization__offload_param__device": "cpu"}}


def large_config(session, layers, changes):
    """Returns a config with one sequence per step and full recomputation, so that the memory for parameters decides."""
    sizes = dict(hidden_size=64, heads=2, sequence_length=32, vocabulary=96) if session.shim else \
        dict(hidden_size=4096, heads=32, sequence_length=1024, vocabulary=50304)
    config = small_config(session, "gpt", training__steps=3, train_batch_size=1, train_micro_batch_size_per_gpu=1,
                          activation_checkpointing__mode="full", **changes)
    config["model"] = {"type": "gpt", "layers": layers, **sizes}
    return config


def device_bytes(session):
    return SHIM_MEMORY_BYTES if session.shim else session.gpu.memory_mib << 20


SHIM_MEMORY_BYTES = 40 << 20
HOST_SHARE = 0.85  # share of the host's memory that offloaded data may take
ATTEMPTS = 3  # real runs per placement


def largest_with(session, where, changes):
    """Doubles and bisects the number of layers with the plan, which needs no GPU. Then runs the largest model that fits by the plan, and
    goes 4 % down while the model does not fit, or 4 % up while it does."""
    def fits(layers):
        memory = plan(session, large_config(session, layers, changes))
        return memory["memory_bytes"]["total"] <= device_bytes(session) and memory.get("host_memory_bytes", 0) <= HOST_SHARE * machine.host_bytes()

    planned = bisect(fits, most=2048)
    if planned == 0:
        raise Failure("by the plan, not even one layer fits")
    best, least_failed, layers, trials = 0, None, planned, []
    for _ in range(ATTEMPTS):
        code = try_layers(session, where, layers, changes)
        trials.append(f"{layers} layers: {'trains' if code == 0 else 'out of memory'}")
        if code == 0:
            best = max(best, layers)
        else:
            least_failed = min(layers, least_failed or layers)
        step = max(1, planned // 25)
        layers = best + step if code == 0 else layers - step
        if layers < 1 or (least_failed and layers >= least_failed) or layers == best:
            break
    parameters = plan(session, large_config(session, best, changes))["parameters"] if best else 0
    return {"largest parameters": parameters, "layers": best, "planned layers": planned, "trials": "; ".join(trials)}


def bisect(fits, most):
    """Returns the largest number up to `most` for which `fits` holds, 0 if there is none. `fits` must hold for all smaller numbers, too."""
    if not fits(1):
        return 0
    low, high = 1, 2
    while high <= most and fits(high):
        low, high = high, 2 * high
    while high - low > max(1, low // 64):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def try_layers(session, where, layers, changes):
    """Returns 0 if a step was done, 19 if there was not enough memory."""
    command, environment, metrics = prepare(session, large_config(session, layers, changes))
    if session.shim:
        environment["CUDA_SHIM_MEMORY_BYTES"] = SHIM_MEMORY_BYTES
    code, output = session.run(command, f"largest-{where.replace(' ', '-')}-{layers}", **environment)
    if refused(code, output):
        raise Skipped(refused(code, output))
    if code not in (0, 19):
        raise Failure(f"{layers} layers: exit code {code}: {last_lines(output)}")
    if code == 0 and not Run(read_metrics(metrics), output).steps:
        raise Failure(f"{layers} layers: exit code 0, but no step was done")
    return code
