"""Runs test programs and reports what they found."""
import dataclasses
import os
import re
import signal
import subprocess
import tempfile
import time


@dataclasses.dataclass
class Outcome:
    failed: str  # what went wrong, or ""
    passed: int  # number of tests, without skipped ones
    seconds: float


def run(program, test_run, limit_seconds):
    """Runs the named tests of a program until one fails. All processes that it started are killed at the end."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([str(program), f"--gtest_filter={test_run.filter}", "--gtest_fail_fast", "--gtest_color=no"],
                                   stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            process.wait(limit_seconds)
            late = False
        except subprocess.TimeoutExpired:
            late = True
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            code = process.wait()
        seconds = time.monotonic() - began
        output.seek(0)
        told = read_output(output)
    return Outcome(describe_failure(told, code, f"time limit of {limit_seconds:.0f} s" if late else ""), told.passed, seconds)


@dataclasses.dataclass
class Told:
    """What GoogleTest prints about its tests."""
    started: str = "before the first test"  # the last test that started
    failed: str = ""  # the first test that failed
    passed: int = 0


def read_output(lines):
    told = Told()
    for line in lines:
        words = line.decode(errors="replace").split()
        if line.startswith(b"[ RUN      ]"):
            told.started = words[3]
        elif line.startswith(b"[  FAILED  ]"):
            told.failed = told.failed or words[3].rstrip(",")
        elif line.startswith(b"[  PASSED  ]"):
            told.passed = int(words[3])
    return told


def describe_failure(told, code, late):
    if late:
        return f"{told.started} ({late})"
    if code < 0:
        return f"{told.started} ({signal.Signals(-code).name})"
    if code:
        return told.failed or f"{told.started} (exit code {code})"
    return ""


def names_of_tests(program):
    """Returns all tests in a program, as Suite.Name."""
    output = subprocess.run([str(program), "--gtest_list_tests"], check=True, stdout=subprocess.PIPE, text=True, errors="replace").stdout
    names, suite = [], ""
    for line in output.splitlines():
        word = line.split("#")[0].rstrip()
        if line.startswith("  "):
            names.append(suite + word.strip())
        elif word.endswith("."):
            suite = word
    return names


def patterns_without_a_test(test_run, names):
    """Returns the parts of the filter that match no test: they are misspelt, or the test was renamed."""
    wanted = test_run.filter.split("-")[0] or "*"
    return [part for part in wanted.split(":") if not any(pattern(part).fullmatch(name) for name in names)]


def pattern(part):
    return re.compile("".join({"*": ".*", "?": "."}.get(letter, re.escape(letter)) for letter in part))
