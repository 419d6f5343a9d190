"""A copy of the working tree with its own build folder, in which a mutant is planted, built and tested."""
import contextlib
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time


class TreeError(Exception):
    """The copy cannot be made, or it does not build or pass its tests without a mutant."""


class Copy:
    """The tree below `root`, copied to root/build/mutate-NUMBER and built in build/cpu-release below that.

    With these names ccache finds what was compiled in root/build/cpu-release: relative to the build folder all paths are the same.
    """

    def __init__(self, root, number, jobs):
        self.root = root
        self.folder = root / f"build/mutate-{number}"
        self.build_folder = self.folder / "build/cpu-release"
        self.jobs = jobs
        self.running = None  # a test program
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lock = open(root / f"build/mutate-{number}.lock", "w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TreeError(f"another scripts/mutate is running in {self.folder}; wait until it ends") from None

    def refresh(self):
        """Makes the copy equal to the working tree. Unchanged files keep their times, so only what changed is built again."""
        listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=self.root, check=True,
                                stdout=subprocess.PIPE, text=True).stdout.split("\0")
        wanted = {name for name in listed if name and (self.root / name).is_file()}
        for name in wanted:
            copy_if_different(self.root / name, self.folder / name)
        for folder, folders, files in os.walk(self.folder):
            if pathlib.Path(folder) == self.folder:
                folders[:] = [name for name in folders if name != "build"]
            for name in files:
                path = pathlib.Path(folder, name)
                if str(path.relative_to(self.folder)) not in wanted:
                    path.unlink()

    def configure(self):
        """Configures again, too, so that compile_commands.json has new files."""
        options = ["-DTRIVET_BENCH=OFF", "-DTRIVET_EXAMPLES=OFF", "-DTRIVET_INSTALL=OFF", "-DTRIVET_CUDA=OFF",
                   "-DTRIVET_UNITY=OFF"]  # a mutant changes one file
        if shutil.which("ccache"):
            options.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
        if shutil.which("ld.lld"):
            options += [f"-DCMAKE_{kind}_LINKER_FLAGS=-fuse-ld=lld" for kind in ("EXE", "MODULE", "SHARED")]
        done = subprocess.run(["cmake", "--preset", "cpu-release", *options], cwd=self.folder, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise TreeError(f"cmake in {self.folder} failed with exit code {done.returncode}:\n{done.stdout[-3000:]}")

    def compiles(self, file):
        """Whether this build has the file; the sources of a transport, say, need its library."""
        commands = json.loads((self.build_folder / "compile_commands.json").read_text())
        return not file.endswith(".cpp") or str(self.folder / file) in {command["file"] for command in commands}

    def build(self, program):
        """Returns "" or the compiler's output."""
        done = subprocess.run(["cmake", "--build", str(self.build_folder), "-j", str(self.jobs), "--target", program],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        return done.stdout[-3000:] if done.returncode else ""

    @contextlib.contextmanager
    def planted(self, mutant):
        """The old text is restored with a new file time, so that the build sees this change, too."""
        path = self.folder / mutant.file
        text = path.read_text()
        path.write_text(mutant.plant(text))
        try:
            yield
        finally:
            path.write_text(text)

    def test(self, tests, limit_seconds):
        """Runs PROGRAM or PROGRAM:FILTER until a test fails. Returns (what failed or "", number of tests that passed, seconds)."""
        began, late = time.monotonic(), ""
        program, _, chosen = tests.partition(":")
        command = [self.build_folder / "tests" / program, f"--gtest_filter={chosen or '*'}", "--gtest_fail_fast", "--gtest_color=no"]
        with tempfile.TemporaryFile() as output:
            self.running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
            try:
                self.running.wait(limit_seconds)
            except subprocess.TimeoutExpired:
                late = f" (time limit of {limit_seconds:.0f} s)"
            finally:
                self.stop()  # also what the tests have started and left behind
                code = self.running.wait()
            output.seek(0)
            text = output.read().decode(errors="replace")
        seconds = time.monotonic() - began
        passed = re.findall(r"^\[  PASSED  \] (\d+)", text, re.MULTILINE)
        if code == 0 and passed and not late:
            return "", int(passed[-1]), seconds
        failed = re.findall(r"^\[  FAILED  \] ([^\s,]+)", text, re.MULTILINE)
        begun = ["before the first test", *re.findall(r"^\[ RUN      \] (\S+)", text, re.MULTILINE)]
        return f"{program}: {(failed or begun)[-1]}" + (late or f" (exit code {code})" * (code != 1)), 0, seconds

    def stop(self):
        """Kills the test program and all that it has started, if one is running."""
        with contextlib.suppress(ProcessLookupError):
            if self.running:
                os.killpg(self.running.pid, signal.SIGKILL)


def copy_if_different(source, target):
    content = source.read_bytes()
    if not target.is_file() or target.read_bytes() != content:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    shutil.copymode(source, target)
