"""Tests of kernels, one result for each: a test that crashes or hangs takes no other test's result with it."""
import concurrent.futures
import dataclasses
import re

from gpu_parts.correctness import FINDING, find_sanitizer
from gpu_parts.report import Failure
from gpu_parts.session import last_lines

# What was changed and has not been launched on a GPU since: name and patterns of tests.
NEVER_LAUNCHED = {
    "preference.cu": ["KernelsOnEveryDevice.PreferenceLoss*"],
    "token_choice.cu": ["KernelsOnEveryDevice.*Tokens*"],
    "experts.cu": ["KernelsOnEveryDevice.*Expert*", "KernelsOnEveryDevice.CountRows*", "KernelsOnEveryDevice.GatheredRows*",
                   "KernelsOnEveryDevice.CombineRows*", "KernelsOnEveryDevice.WeightedSwiGlu*"],
    "gated_rows.cu": ["KernelsOnEveryDevice.*Gate*", "KernelsOnEveryDevice.BiasesOfExperts*"],
    "attention_sinks.cu": ["KernelsOnEveryDevice.AttentionSinks*"],
    "expert_biases.cu": ["KernelsOnEveryDevice.BiasesAreAdded*", "KernelsOnEveryDevice.WeightsAreSpread*"],
    "grouped.cu": ["KernelsOnEveryDevice.Grouped*"],
    "copy_runs.cu": ["KernelsOnEveryDevice.CopyRuns*"],
    "documents of attention": ["*CudaAttention.*_documents*"],
    "own tokens of attention": ["CudaAttention.OwnTokens*"],
    "merged attention": ["CudaAttention.MergesResultsAsTheCpu"],
    "two parts of dropout": ["KernelsOnEveryDevice.DropoutAddFollows*"],
    "places of an embedding": ["CudaEmbedding.LooksRowsUp"],
    "soft cap of an activation": ["KernelsOnEveryDevice.SoftCap*"],
    "soft cap of attention": ["*CudaAttention.*_C*"],
    "soft cap of cross-entropy": ["KernelsOnEveryDevice.CrossEntropyGradientThroughASoftCap*"],
    "rotary.cu": ["CudaRotary.*"],
    "add_losses with rewards": ["KernelsOnEveryDevice.SumLosses*"],
    "a step without targets": ["KernelsOnEveryDevice.Verdict*"],
    "shared prefix_of_block": ["KernelsOnEveryDevice.ChooseTokens*", "KernelsOnEveryDevice.OrderByExpert*", "CudaEmbedding.Gradients*", "CudaEmbedding.RowsAroundTheLimit*", "CudaEmbedding.LongLists*"],
}
# What passed on a GPU before it was changed, and whose results after the change were lost.
NOT_ON_RECORD = {
    "norm": ["KernelsOnEveryDevice.Norm*", "KernelsOnEveryDevice.HeadNorm*", "CudaLarge.NormsOfSums*"],
    "rows": ["KernelsOnEveryDevice.Norm*", "KernelsOnEveryDevice.CrossEntropy*"],
    "column sums": ["KernelsOnEveryDevice.NormBackwardWeight*", "KernelsOnEveryDevice.BiasGradient*"],
    "logits": ["KernelsOnEveryDevice.CrossEntropy*"],
    "dropout masks": ["KernelsOnEveryDevice.Dropout*", "*CudaAttentionDropout.*"],
    "quantization": ["KernelsOnEveryDevice.Quantiz*"],
    "divisions of attention": ["OnTensorCores/CudaAttention.*", "CudaAttention.*"],
}
MOST_CRASHES = 6      # after these, the tests that are left do not run
SILENT_SECONDS = 25   # without output: a test hangs; the first test waits until all kernels are loaded
ALONE_SECONDS = 12    # for a failed test that runs once more, alone

STATE = re.compile(r"^\[\s+(RUN|OK|FAILED|SKIPPED)\s+\] ([\w/.]+)(.*)$")


@dataclasses.dataclass
class TestResult:
    state: str = "not run"  # passed, failed, crashed, hung, skipped
    milliseconds: str = ""
    note: str = ""
    findings: int = 0       # of a sanitizer

    @property
    def bad(self):
        return self.state in ("failed", "crashed", "hung") or self.findings > 0


def list_tests(output):
    """Reads what --gtest_list_tests prints; returns full names in the program's order."""
    tests, suite = [], None
    for line in output.splitlines():
        name = line.split("#")[0].strip()
        if re.fullmatch(r"[\w/]+\.", name) and not line.startswith(" "):
            suite = name
        elif line.startswith("  ") and suite:
            tests.append(suite + name)
    return tests


def matches(pattern, test):
    """GoogleTest's patterns: * is any text, ? any character."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), test) is not None


def tests_of(patterns, tests):
    return [test for test in tests if any(matches(pattern, test) for pattern in patterns)]


def items_of(lists, tests):
    """Returns {item: tests}; an item without a test is an error of the lists above."""
    found = {item: tests_of(patterns, tests) for item, patterns in lists.items()}
    empty = [item for item, chosen in found.items() if not chosen]
    if empty:
        raise Failure(f"no test is of {', '.join(empty)}: the patterns in gpu_parts/kernel_tests.py fit no test any more")
    return found


def some_of(tests, most):
    """Returns at most `most` tests of each name, evenly from all its values: Test/0, Test/1 ..."""
    by_name = {}
    for test in tests:
        by_name.setdefault(test.rsplit("/", 1)[0] if "/" in test.split(".")[1] else test, []).append(test)
    chosen = []
    for values in by_name.values():
        chosen += dict.fromkeys(values[len(values) * i // most] for i in range(min(most, len(values)))) if len(values) > most else values
    return chosen


class TestRun:
    """Runs tests of a program, again and again until each has a result. `prefix`: the command of a sanitizer."""

    def __init__(self, session, program, tests, tool="", prefix=(), arguments=(), environment=None, silence=SILENT_SECONDS):
        self.session, self.program, self.tool, self.silence = session, program, tool, silence
        self.prefix, self.arguments, self.environment = list(prefix), list(arguments), environment or {}
        self.results = {test: TestResult() for test in tests}
        self.current = None
        self.crashes = 0
        self.summary = ""
        self.outside = []  # findings of a sanitizer between tests

    def left(self):
        return [test for test, result in self.results.items() if result.state == "not run"]

    def run(self, seconds_left):
        """`seconds_left`: a function. Returns the results; those for which there was no time are "not run"."""
        while self.left() and seconds_left() > 0.5 and self.crashes < MOST_CRASHES:
            before = len(self.left())
            ended = self.start(self.left(), seconds_left())
            if ended.how == "ended" and ended.code == 77:
                raise Failure(last_lines(ended.output, 1))
            if self.current:
                self.blame(ended)
                self.crashes += ended.how != "limit"
            elif len(self.left()) == before and ended.how != "limit":  # it ended before the first test
                raise Failure(f"{self.program.name}{' under ' + self.tool if self.tool else ''} {ended.describe()}: {last_lines(ended.output)}")
            if ended.how == "limit":
                break
        return self.results

    def start(self, tests, seconds):
        self.current = None
        command = [*self.prefix, self.program, f"--gtest_filter={':'.join(tests)}", *self.arguments]
        return self.session.run_lines(command, f"{self.program.name} {self.tool}".strip(), seconds, self.on_line,
                                      2 * self.silence if self.tool else self.silence, **self.environment)

    def blame(self, ended):
        """The test that was running when the program ended."""
        if ended.how == "limit":
            self.results[self.current].note = "cut off by the time"
            return
        state = "hung" if ended.how == "silent" else "crashed"
        self.finish(self.current, state, "", ended.describe())

    def on_line(self, line):
        found = STATE.match(line)
        if not found:
            if self.tool and FINDING.match(line):
                self.finding(line)
            if "SUMMARY:" in line:
                self.summary = line.lstrip("= ")
            return
        what, test, rest = found.groups()
        if test not in self.results:
            return
        if what == "RUN":
            self.current = test
        elif rest.rstrip().endswith("ms)"):  # a line without a time is one of the list of failed tests at the end
            states = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}
            milliseconds = re.search(r"\((\d+) ms\)", rest)
            self.finish(test, states[what], milliseconds[1] if milliseconds else "", "")

    def finding(self, line):
        if self.current:
            self.results[self.current].findings += 1
            self.results[self.current].note = self.results[self.current].note or line.lstrip("= ")
        else:
            self.outside.append(line.lstrip("= "))

    def finish(self, test, state, milliseconds, note):
        result = self.results[test]
        result.state, result.milliseconds, result.note = state, milliseconds, result.note or note
        self.current = None
        self.session.record.append(f"{self.session.record.name}-tests.tsv", "\t".join(
            [self.tool or "plain", test, state, milliseconds, str(result.findings) if self.tool else "", " ".join(result.note.split())]))

    def rerun_failed_alone(self, seconds_left):
        """After a failed kernel all later tests of the process fail, too: says which failed tests pass alone."""
        for test, result in self.results.items():
            if result.state != "failed" or seconds_left() < 3:
                continue
            again = TestRun(self.session, self.program, [test], self.tool, self.prefix, self.arguments, self.environment, self.silence)
            state = again.run(lambda: min(ALONE_SECONDS, seconds_left()))[test].state
            result.note = f"alone: {state}"


def counted(results):
    """Returns "12 passed" or "10 passed, 1 failed, 1 not run"."""
    counts = {}
    for result in results:
        counts[result.state] = counts.get(result.state, 0) + 1
    text = ", ".join(f"{count} {state}" for state, count in sorted(counts.items(), key=lambda pair: pair[0] != "passed"))
    findings = sum(result.findings for result in results)
    return text + (f", {findings} findings" if findings else "")


def verdict(results):
    """One word for a table: the worst that happened."""
    states = [result.state for result in results]
    for state in ("crashed", "hung", "failed"):
        if state in states:
            return state
    if any(result.findings for result in results):
        return "findings"
    return "passed" if states and all(state in ("passed", "skipped") for state in states) else "not complete"


def record_items(session, part, items, results):
    """One figure for each item of a list."""
    for item, tests in items.items():
        of_item = [results[test] for test in tests if test in results]
        session.record.figure(part, item, f"{verdict(of_item)} ({counted(of_item)})")


def problems_of(results):
    return [f"{test} {result.state if result.state != 'passed' else 'has findings'}" + (f" ({result.note})" if result.note else "")
            for test, result in results.items() if result.bad]


def program_of(session):
    """test_gpu; on the fake device test_cuda, which has the same tests and some more."""
    return session.program("tests/test_cuda" if session.shim else "tests/cuda/gpu/test_gpu")


def all_tests(session):
    program = program_of(session)
    ended = session.run_lines([program, "--gtest_list_tests"], "list", 20)
    if ended.how != "ended" or ended.code != 0:
        raise Failure(f"{program.name} --gtest_list_tests: {ended.describe()}: {last_lines(ended.output)}")
    return list_tests(ended.output)


def kernels(session):
    """All tests: those of the lists first."""
    tests = all_tests(session)
    lists = {"never launched": items_of(NEVER_LAUNCHED, tests), "not on record": items_of(NOT_ON_RECORD, tests)}
    results, problems = {}, []
    for name, items in lists.items():
        chosen = [test for test in tests if any(test in of_item for of_item in items.values()) and test not in results]
        results.update(run_list(session, chosen, 2 if session.shim else None))
        record_items(session, "kernels", items, results)
    others = [test for test in tests if test not in results]
    if not session.shim:
        results.update(run_list(session, others, None))
        session.record.figure("kernels", "all others", f"{verdict([results[t] for t in others])} ({counted([results[t] for t in others])})")
    problems = problems_of(results)
    if problems:
        raise Failure(f"{len(problems)} of {len(results)} tests: {'; '.join(problems[:8])}")
    unfinished = sum(result.state == "not run" for result in results.values())
    if unfinished:
        session.cut(f"{unfinished} of {len(results)} tests were not run")
    return counted(list(results.values()))


def run_list(session, tests, most):
    run = TestRun(session, program_of(session), some_of(tests, most) if most else tests)
    results = run.run(session.left)
    run.rerun_failed_alone(session.left)
    return results


def sanitize_list(session, part, lists, most):
    """memcheck and racecheck at the same time: both take processors, not the GPU."""
    sanitizer = None if session.shim else find_sanitizer(session)
    items = items_of(lists, all_tests(session))
    chosen = list(dict.fromkeys(test for tests in items.values() for test in some_of(tests, most)))
    items = {item: [test for test in tests if test in chosen] for item, tests in items.items()}

    def check(tool):
        prefix = session.stand_in_sanitizer(tool) if session.shim else \
            [sanitizer, "--tool", tool, "--error-exitcode", "86", *(["--report-api-errors", "no"] if tool == "memcheck" else [])]
        # Kernels are instrumented when they are loaded: lazy loading leaves out those of cuBLASLt.
        run = TestRun(session, program_of(session), chosen, tool, prefix, environment={"CUDA_MODULE_LOADING": "LAZY"})
        try:
            run.run(session.left)
        except Failure as failure:  # the other tool goes on
            run.outside.append(str(failure))
        return run

    problems, texts, unfinished = [], [], 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for run in pool.map(check, ("memcheck", "racecheck")):
            record_items(session, f"{part}, {run.tool}", items, run.results)
            problems += [f"{run.tool}: {problem}" for problem in problems_of(run.results) + run.outside]
            unfinished += sum(result.state == "not run" for result in run.results.values())
            texts.append(f"{run.tool}: {counted(list(run.results.values()))}" + (f" [{run.summary}]" if run.summary else ""))
    if problems:
        raise Failure("; ".join(problems[:8]))
    if unfinished:
        session.cut(f"{'; '.join(texts)}")
    return "; ".join(texts)


def sanitize_never_launched(session):
    return sanitize_list(session, "never launched", NEVER_LAUNCHED, 1 if session.shim else 8)


def sanitize_not_on_record(session):
    return sanitize_list(session, "not on record", NOT_ON_RECORD, 1 if session.shim else 3)
