"""The parts with one rank: kernels, module, train, offload, sanitizer."""
import json
import math
import pathlib
import re
import shutil

from gpu_parts.process import OutOfTime
from gpu_parts.report import Failure, Skipped
from gpu_parts.session import last_lines
from gpu_parts.training import first_difference, prepare, small_config, train, with_changes

# The largest accepted relative difference of a step's loss from the CPU's. In float32, sums in a different order add up over 20
# updates. In bfloat16, rounding the other way changes an activation by 2^-8, and the loss is a mean over thousands of them.
CURVE_TOLERANCE = {"fp32": 2e-4, "bf16": 1e-2}


def kernels(session):
    counts = run_tests(session)
    failed = counts["failed"]
    if failed:
        raise Failure(f"{len(failed)} of {counts['tests']} tests failed: {', '.join(failed[:5])} (log: {session.log_path('test_gpu')})")
    if counts["tests"] == 0:
        raise Failure("test_gpu has no tests")
    return f"{counts['tests']} tests passed, {counts['skipped']} skipped"


TEST_GPU = "tests/cuda/gpu/test_gpu"


def run_tests(session):
    """Runs all of test_gpu; returns the counts in its report."""
    report = session.logs / f"{session.part}-report.json"
    code, output = session.run([session.program(TEST_GPU), "--gtest_brief=1", f"--gtest_output=json:{report}"], "test_gpu")
    if code == 77:
        raise Failure(last_lines(output, 1))
    if not report.exists():
        raise Failure(f"test_gpu exited with code {code} without a report: {last_lines(output)}")
    counts = {"tests": 0, "skipped": 0, "failed": []}
    for suite in json.loads(report.read_text())["testsuites"]:
        for test in suite["testsuite"]:
            counts["tests"] += test.get("status") == "RUN"
            counts["skipped"] += test.get("result") == "SKIPPED"
            if test.get("failures"):
                counts["failed"].append(f"{suite['name']}.{test['name']}")
    if code != 0 and not counts["failed"]:
        raise Failure(f"test_gpu: exit code {code}: {last_lines(output)}")
    return counts


def module(session):
    """Without a GPU, the module or enough memory, a run ends as docs/cuda.md says; with all of these it names the GPU."""
    config = small_config(session, "gpt", training__steps=2)
    no_gpu = {"CUDA_SHIM_DEVICES": 0} if session.shim else {"CUDA_VISIBLE_DEVICES": ""}
    gpu_name = None if session.shim else session.gpu.name
    huge = with_changes(config, {"model__layers": 40, "model__hidden_size": 8192, "model__heads": 64, "model__key_value_heads": 0})
    small_memory = {"CUDA_SHIM_MEMORY_BYTES": 1 << 20} if session.shim else {}
    rows = [
        expect(session, "cuda", config, 0, gpu_name or "cuda:0"),
        expect(session, "auto", with_changes(config, {"device": "auto"}), 0, "auto: cuda"),
        expect(session, "cuda-without-gpu", config, 2, "there is no GPU", **no_gpu),
        expect(session, "auto-without-gpu", with_changes(config, {"device": "auto"}), 0, "auto: cpu", **no_gpu),
        expect(session, "cuda-without-module", config, 2, "module", TRIVET_CUDA_MODULE=session.work / "none.so"),
        expect(session, "out-of-memory", config if session.shim else huge, 19, "", **small_memory),
    ]
    session.details["runs"] = rows
    wrong = [row for row in rows if not row["as expected"]]
    if wrong:
        raise Failure(f"{len(wrong)} of {len(rows)} runs did not end as expected: " +
                      "; ".join(f"{row['run']}: exit code {row['exit code']} instead of {row['expected']}: {row['message']}" for row in wrong))
    return f"{len(rows)} runs ended as expected"


def expect(session, name, config, code, text, **environment):
    command, _, _ = prepare(session, config)
    actual, output = session.run(command, name, 60, **environment)
    return {"run": name, "exit code": actual, "expected": code, "as expected": actual == code and text in output,
            "message": last_lines(output, 1)[:120]}


def train_curves(session, kind, precision):
    config = small_config(session, kind, bf16__enabled=precision == "bf16")
    cuda = train(session, config, f"{kind}-{precision}-cuda")
    cpu = train(session, with_changes(config, {"device": "cpu"}), f"{kind}-{precision}-cpu")
    worst = max(abs(a - b) / abs(b) if math.isfinite(a) else math.inf for a, b in zip(cuda.losses, cpu.losses))
    falls = session.shim or cuda.losses[-1] < 0.95 * cuda.losses[0]
    return cuda, {"model": kind, "precision": precision, "first loss": cuda.losses[0], "last loss": cuda.losses[-1],
                  "last loss, cpu": cpu.losses[-1], "largest difference": worst, "tolerance": CURVE_TOLERANCE[precision],
                  "ok": worst <= CURVE_TOLERANCE[precision] and falls}


def train_same_bits(session, kind, reference):
    """Settings that move work in time or place change no bit: compares such runs with the bf16 run of train_curves."""
    config = small_config(session, kind)
    layout = with_changes(config, {"reproducible": "layout"})
    runs = {"repeated": (config, reference), "without graph": (with_changes(config, {"cuda_graph": "off"}), reference),
            "recompute full": (with_changes(config, {"activation_checkpointing__mode": "full"}), reference)}
    recorded = {"timeline__step": 2, "timeline__steps": 1, "timeline__directory": str(session.work / f"timeline-{kind}")}
    runs["timeline recorded"] = (with_changes(config, recorded), reference)
    first = train(session, layout, f"{kind}-layout-zero-0")
    for stage in (1, 3):
        runs[f"layout, zero {stage}"] = (with_changes(layout, {"zero_optimization__stage": stage}), first)
    rows = []
    for name, (changed, expected) in runs.items():
        step = first_difference(train(session, changed, f"{kind}-{name}".replace(", ", "-").replace(" ", "-")), expected)
        rows.append({"model": kind, "run": name, "bits": "equal" if step is None else f"differ from step {step}"})
    return rows


def curves(session):
    curves, bits = [], []
    for kind in ("gpt", "llama"):
        for precision in ("fp32", "bf16"):
            run, row = train_curves(session, kind, precision)
            curves.append(row)
        bits += train_same_bits(session, kind, run)
    session.details.update({"loss curves": curves, "same bits": bits})
    wrong = [f"{row['model']} {row['precision']}: loss differs by {row['largest difference']:.2g}, accepted is {row['tolerance']:g}, "
             f"{row['first loss']:.4f} to {row['last loss']:.4f}" for row in curves if not row["ok"]]
    wrong += [f"{row['model']}, {row['run']}: bits {row['bits']}" for row in bits if row["bits"] != "equal"]
    if wrong:
        raise Failure("; ".join(wrong))
    worst = {precision: max(row["largest difference"] for row in curves if row["precision"] == precision) for precision in CURVE_TOLERANCE}
    return f"losses within {worst['fp32']:.1e} (fp32), {worst['bf16']:.1e} (bf16) of the CPU's; {len(bits)} runs bit-equal"


def offload(session):
    """Offload only moves data: no bit of the loss changes."""
    plain = small_config(session, "gpt", zero_optimization__stage=3)
    reference = train(session, plain, "none")
    files = session.work / "offload"
    files.mkdir(exist_ok=True)
    optimizer, weights = "zero_optimization__offload_optimizer__", "zero_optimization__offload_param__"
    on_file = {optimizer + "device": "nvme", optimizer + "nvme_path": str(files), optimizer + "buffer_count": 9}
    cases = {
        "optimizer to host": {optimizer + "device": "cpu"},
        "half of the optimizer to host": {optimizer + "device": "cpu", optimizer + "ratio": 0.5},
        "weights to host": {weights + "device": "cpu"},
        "both to host": {optimizer + "device": "cpu", weights + "device": "cpu"},
        "optimizer to files": on_file,
        "optimizer to files, pipelined": {**on_file, optimizer + "pipeline_read": True, optimizer + "pipeline_write": True},
        "both to files": {**on_file, weights + "device": "nvme", weights + "nvme_path": str(files), weights + "max_in_cpu": 0},
    }
    rows = []
    for name, changes in cases.items():
        try:
            run = train(session, with_changes(plain, changes), name.replace(", ", "-").replace(" ", "-"))
        except Skipped as reason:
            rows.append({"case": name, "bits": "not in this build", "measured MiB": "", "message": str(reason)})
            continue
        step = first_difference(run, reference)
        rows.append({"case": name, "bits": "equal" if step is None else f"differ from step {step}", "measured MiB": run.memory()[1]})
    rows.insert(0, {"case": "nothing", "bits": "reference", "measured MiB": reference.memory()[1]})
    session.details["offload"] = rows
    wrong = [f"{row['case']}: bits {row['bits']}" for row in rows if row["bits"].startswith("differ")]
    if wrong:
        raise Failure("; ".join(wrong))
    if any(files.iterdir()):
        raise Failure(f"files were left: {', '.join(sorted(path.name for path in files.iterdir()))}")
    missing = [row["case"] for row in rows if row["bits"] == "not in this build"]
    if len(missing) == len(cases):
        raise Skipped(f"not in this build: {rows[1]['message']}")
    return f"{len(cases) - len(missing)} cases bit-equal" + (f"; not in this build: {', '.join(missing)}" if missing else "")


TESTS_OF_A_SUITE = 2  # for the sanitizer, which is 10 to 100 times slower


def some_tests(session):
    """Returns the first and the middle test of every suite, including parametrised ones."""
    code, output = session.run([session.program(TEST_GPU), "--gtest_list_tests"], "list", 30)
    if code != 0:
        raise Failure(f"test_gpu --gtest_list_tests: exit code {code}: {last_lines(output)}")
    suites, suite = {}, None
    for line in output.splitlines():
        name = line.split("#")[0].strip()
        if re.fullmatch(r"[\w/]+\.", name) and not line.startswith(" "):
            suite = suites.setdefault(name, [])
        elif line.startswith("  ") and suite is not None:
            suite.append(name)
    chosen = []
    for suite, tests in suites.items():
        by_name = {}  # in a parametrised suite: Test/0, Test/1 ...
        for test in tests:
            by_name.setdefault(test.split("/")[0], []).append(test)
        for values in by_name.values():
            picks = dict.fromkeys(values[len(values) * i // TESTS_OF_A_SUITE] for i in range(min(TESTS_OF_A_SUITE, len(values))))
            chosen += [suite + pick for pick in picks]
    return chosen


def find_sanitizer(session):
    beside = session.toolkit.nvcc.parent if session.toolkit else pathlib.Path("/nonexistent")
    for path in (shutil.which("compute-sanitizer"), beside / "compute-sanitizer", beside.parent / "compute-sanitizer" / "compute-sanitizer"):
        if path and pathlib.Path(path).exists():
            return str(path)
    raise Skipped("compute-sanitizer is not installed")


FINDING = re.compile(r"^=+ (Invalid|Error: |Race|Program hit|Fatal|Unused|Uninitialized|Barrier error|Leaked|Misaligned)", re.MULTILINE)


def sanitize(session, program, tool, tests, seconds):
    """Runs one tool on some tests; what it has found when its time is over counts, too."""
    row = {"tool": tool, "chosen tests": len(tests)}
    command = [program, "--tool", tool, "--error-exitcode", "86", *(["--report-api-errors", "no"] if tool == "memcheck" else []),
               session.program(TEST_GPU), f"--gtest_filter={':'.join(tests)}"]
    try:
        # Kernels are instrumented when they are loaded, so lazy loading avoids instrumenting all of cuBLASLt's.
        row["exit code"], output = session.run(command, tool, seconds, CUDA_MODULE_LOADING="LAZY")
    except OutOfTime:
        row["exit code"], output = "no time for all", session.log_path(tool).read_text(errors="replace")
    summary = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)", output)
    row.update({"passed": output.count("[       OK ]"), "failed": len(re.findall(r"^\[  FAILED  \] .* ms\)$", output, re.MULTILINE)),
                "findings": int(summary[1]) if summary else len(FINDING.findall(output))})
    ended = row["exit code"] == "no time for all" or (row["exit code"] == 0 and summary)
    row["ok"] = bool(ended and row["passed"] and not row["failed"] and not row["findings"])
    return row


def sanitizer(session):
    program = find_sanitizer(session)
    tests = [test for test in some_tests(session) if not test.startswith("Stream")]  # these hold streams while kernels are loaded
    rows = [sanitize(session, program, "memcheck", tests, session.left() / 2)]
    rows.append(sanitize(session, program, "racecheck", tests, session.left() - 6))
    session.details["tools"] = rows
    wrong = [f"{row['tool']}: {row['findings']} findings, {row['failed']} failed tests, exit code {row['exit code']} "
             f"(log: {session.log_path(row['tool'])})" for row in rows if not row["ok"]]
    if wrong:
        raise Failure("; ".join(wrong))
    return ", ".join(f"{row['tool']}: nothing in {row['passed']} of {row['chosen tests']} tests" for row in rows)
