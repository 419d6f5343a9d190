"""scripts/gpu_check session: everything that is worth knowing from a GPU that is at hand for a quarter of an hour.

  scripts/gpu_check session build [--folder FOLDER]     here: builds for sm_90 into a folder to carry; needs nvcc, but no GPU
  FOLDER/run first  [--out OUT]                         there, at most 5 minutes: is it right?
  FOLDER/run second [--out OUT]                         there, at most 6 minutes: how fast is it?

docs/cuda.md says what has to be on the machine and what the two commands do. Each figure is written to OUT as soon as it is known
(first.tsv, second.tsv; tests and logs beside them), next to the prediction for this card; OUT is --out, otherwise $OUT, otherwise
build/gpu_check/results. The parts run in the order of their importance:

%s

A part that crashes or hangs is ended and reported, and the next one begins. What an earlier part leaves of its time goes to the next.
The last line says what ran, what failed and what was cut off by the time. Exit code: 0; 1 if a part failed or nothing could run; 2 if
there is no GPU, or the command line is wrong; 3 if parts were cut off.

With --shim both commands run on the fake device of tests/cuda/shim, with tiny models: this tests the script, not a GPU.
"""
import argparse
import os
import pathlib
import sys
import tempfile
import time
import traceback
import types

from gpu_parts import carry, first_command, machine, process, second_command
from gpu_parts.lines import run_lines
from gpu_parts.process import Interrupted, OutOfTime
from gpu_parts.record import Record, card_of, read_predictions
from gpu_parts.report import Failure, Result, Skipped
from gpu_parts.session import Session

COMMANDS = {"first": (290, first_command.PARTS), "second": (350, second_command.PARTS)}
LOG_LINES = 20_000  # of one command


class Cut(Exception):
    """A part was not complete when its time was over; the text says what is missing."""


class ShortSession(Session):
    """A session whose commands write into one log, and whose figures are kept at once (record.py)."""

    def __init__(self, args, gpu, work, record, libraries):
        super().__init__(args, gpu, work)
        self.record = record
        self.libraries = libraries  # carry.Libraries
        self.logs = work
        self.log = open(record.out / f"{record.name}-log.txt", "w", buffering=1)
        folders = list(libraries.folders)
        if (self.build / "lib").is_dir():
            folders.append(self.build / "lib")
        # A program that is built for another Python's CUDA libraries finds its own: only Trivet's get these folders.
        self.toolkit = types.SimpleNamespace(library_folders=folders, nvcc=pathlib.Path("/usr/local/cuda/bin/nvcc"))

    def start_part(self, name, seconds):
        self.part, self.end, self.details = name, time.monotonic() + seconds, {}

    def log_path(self, name):
        return self.record.out / f"{self.record.name}-log.txt"

    def program(self, name):
        path = self.build / name
        if not path.exists():
            raise Failure(f"{path} is missing: " + ("build it" if self.shim else "build the folder again (gpu_check session build)"))
        return path

    @property
    def trivet(self):
        return self.program("trivet")

    def cut(self, text):
        raise Cut(text)

    def run_lines(self, command, name, seconds=None, on_line=lambda line: None, silence=None, **environment):
        """Runs a command within `seconds` and the part's limit; its lines go into the log and to `on_line` as they come."""
        self.log.write(f"== {self.part}: {name}: {' '.join(str(word) for word in command)[:1000]}\n")
        count = [0]

        def take(line):
            count[0] += 1
            if count[0] <= LOG_LINES:
                self.log.write(f"[{name}] {line}\n")
            on_line(line)

        ended = run_lines(command, self.environment(**environment), min(self.left(), seconds or self.left()), take, silence)
        self.log.write(f"== {name}: {ended.describe()}\n")
        return ended

    def run(self, command, name, limit=None, **environment):
        ended = self.run_lines(command, name, limit, **environment)
        if ended.how == "limit":
            raise OutOfTime(name)
        return ended.code, ended.output

    def stand_in_sanitizer(self, tool):
        """For the fake device: a command that looks like compute-sanitizer and finds nothing."""
        script = 'echo "========= COMPUTE-SANITIZER: none on the fake device"; "$@"; code=$?; echo "========= $0 SUMMARY: 0 errors"; exit $code'
        return ["sh", "-c", script, tool]

    def log_exception(self):
        self.log.write(traceback.format_exc())


def run_part(part, session, seconds):
    """Runs one part; whatever goes wrong in it is in the result. Raises only Interrupted."""
    begin = time.monotonic()
    if session.shim and not part.on_fake_device:
        return Result(part.name, "skipped", 0, "needs a GPU")
    session.start_part(part.name, seconds)
    print(f"== {part.name}: {part.what} (at most {seconds:.0f} s)", flush=True)
    try:
        result, text = "ok", part.function(session)
    except Skipped as reason:
        result, text = "skipped", str(reason)
    except Failure as failure:
        result, text = "FAILED", str(failure)
    except Cut as cut:
        result, text = "cut", str(cut)
    except OutOfTime as late:
        result, text = "cut", f"not done in {seconds:.0f} s: {late}"
    except Interrupted:
        raise
    except Exception as defect:  # a bug here; the other parts go on
        session.log_exception()
        result, text = "FAILED", f"{type(defect).__name__}: {defect}"
    left_over = process.end_children()
    if left_over:
        result, text = "FAILED", f"{text}; these processes were still running and were killed: {', '.join(left_over)}"
    return Result(part.name, result, time.monotonic() - begin, text or "")


def seconds_of(parts, i, left, patience):
    """The time of a part: its limit, and what earlier parts left of theirs."""
    later = patience * sum(part.limit for part in parts[i + 1:])
    return min(left, max(patience * parts[i].limit, left - later))


LEAST_SECONDS = 3  # a part is not begun with less


def run_parts(parts, session, end, patience):
    for i, part in enumerate(parts):
        left = end - time.monotonic()
        if left < LEAST_SECONDS:
            result = Result(part.name, "cut", 0, "not begun: no time was left")
        else:
            result = run_part(part, session, seconds_of(parts, i, left, patience))
        session.record.part(result)
        print(f"{result.name}: {result.result}, {result.seconds:.1f} s: {result.figure}", flush=True)


def check_ready(session):
    """What the programs need and this machine lacks; empty if nothing."""
    problems = [] if session.shim else session.libraries.problems()
    if not problems:
        ended = session.run_lines([session.trivet, "--version"], "trivet --version", 30)
        if ended.how != "ended" or ended.code != 0:
            problems.append(f"trivet does not start: {ended.describe()}: {ended.output.strip()[-300:]}")
    return problems


def run_command(name, args, gpu, out):
    limit, parts = COMMANDS[name]
    end = time.monotonic() + (args.limit or limit) * args.patience
    libraries = carry.Libraries(carry.needed(args.build), args.python)
    record = Record(out, name, None if args.shim else card_of(gpu.name), read_predictions())
    facts = {**machine.facts(gpu, args.shim), "programs": carry.built_from(args.build), **libraries.facts()}
    with tempfile.TemporaryDirectory(prefix="gpu_session-") as work:
        session = ShortSession(args, gpu, pathlib.Path(work), record, libraries)
        for key, value in facts.items():
            record.figure("facts", key, value)
        session.start_part("ready", 60)
        problems = check_ready(session)
        if problems:
            record.part(Result("ready", "FAILED", 0, "; ".join(problems)))
            print("\n".join(f"gpu_check session: {problem}" for problem in problems), file=sys.stderr)
            return 1, record.last_line()
        try:
            run_parts(parts, session, end, args.patience)
        except Interrupted:
            process.end_children()
            record.part(Result(session.part, "cut", 0, "interrupted"))
            return 130, record.last_line()
    states = [part.result for part in record.parts]
    return (1 if "FAILED" in states else 3 if "cut" in states else 0), record.last_line()


def parse_arguments(words):
    texts = []
    for name, (limit, parts) in COMMANDS.items():
        texts.append(f"{name} ({limit} s):")
        texts += [f"  {part.name:<26} {part.what} ({part.limit} s)" for part in parts]
    parser = argparse.ArgumentParser(prog="gpu_check session", description=__doc__ % "\n".join(texts),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="*", metavar="build|first|second", help="what to do; with --shim first and second, if none is named")
    parser.add_argument("--folder", type=pathlib.Path, help="the folder to carry (build/gpu_session)")
    parser.add_argument("--deps", type=pathlib.Path, help="folder of unpacked packages, for build")
    parser.add_argument("--out", type=pathlib.Path, help="folder of results")
    parser.add_argument("--build", type=pathlib.Path, help="build folder (build/gpu_check)")
    parser.add_argument("--limit", type=float, help="seconds for all parts of a command together (290, 350)")
    parser.add_argument("--patience", type=float, default=1, help="factor for all limits, for a slow machine (%(default)s)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="jobs of the build (default: one per core)")
    parser.add_argument("--python", default=sys.executable, help="a Python that has PyTorch (default: this one)")
    parser.add_argument("--shim", action="store_true", help="run on the fake device")
    args = parser.parse_args(words)
    unknown = [name for name in args.commands if name not in ("build", *COMMANDS)]
    if unknown or (not args.commands and not args.shim):
        parser.error(f"{', '.join(unknown) or 'nothing to do'}: say build, first or second; gpu_check session --help")
    if "build" in args.commands and (len(args.commands) > 1 or args.shim):
        parser.error("build stands alone: the folder that it makes is run on the machine with the GPU (FOLDER/run first)")
    args.commands = args.commands or list(COMMANDS)
    return args


def main(words):
    args = parse_arguments(words)
    args.out = (args.out or pathlib.Path(os.environ.get("OUT") or "build/gpu_check/results")).absolute()
    args.folder = (args.folder or pathlib.Path("build/gpu_session")).absolute()
    args.deps = args.deps and args.deps.absolute()
    os.chdir(pathlib.Path(__file__).resolve().parent.parent.parent)
    args.build = (args.build or (pathlib.Path("programs") if carry.is_carried() else pathlib.Path("build/gpu_check"))).absolute()
    process.adopt_orphans()
    if args.commands == ["build"]:
        return carry.build(args)
    gpu = None if args.shim else machine.find_gpu()
    if gpu is None and not args.shim:
        print("gpu_check session: no GPU: nvidia-smi is missing or lists none. Build the folder here (session build) and run its commands on "
              "a machine with a GPU, or try the script on the fake device (--shim)", file=sys.stderr)
        return 2
    args.out.mkdir(parents=True, exist_ok=True)
    codes, lines = [], []
    for name in args.commands:
        code, line = run_command(name, args, gpu, args.out)
        codes.append(code)
        lines.append(line)
    print(f"results: {args.out}\n" + "\n".join(lines))
    return max(codes, key=lambda code: (code == 130, code == 1, code))
