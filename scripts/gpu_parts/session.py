"""What the parts share: where things are, the environment of commands, limits, logs."""
import os
import pathlib
import time
import traceback

from gpu_parts import machine, process
from gpu_parts.report import Failure


class Session:
    def __init__(self, args, gpu, work):
        self.args = args
        self.gpu = gpu          # machine.Gpu; None on the fake device
        self.shim = args.shim
        self.build = args.build.resolve()
        self.work = work        # temporary, removed when the program ends
        self.logs = self.build / "logs"
        self.toolkit = None if args.shim else machine.find_toolkit(self.build)
        self.packages = machine.Packages(args.deps.resolve(), self.build) if args.deps else None
        self.details = {}
        self.part = ""
        self.end = 0.0

    def start_part(self, name, seconds):
        self.part = name
        self.logs.mkdir(parents=True, exist_ok=True)
        for log in self.logs.glob(f"{name}-*"):
            log.unlink()
        self.end = time.monotonic() + seconds
        self.details = {}

    def left(self):
        """Seconds until the limit of the part."""
        return self.end - time.monotonic()

    @property
    def trivet(self):
        path = self.build / "trivet"
        if not path.exists():
            raise Failure(f"{path} is missing: run the part build")
        return path

    def program(self, name):
        path = self.build / name
        if not path.exists():
            raise Failure(f"{path} is missing: run the part build")
        return path

    def environment(self, **more):
        """The environment of all commands: libraries of the toolkit and packages; with --shim, the module of the fake device."""
        environment = dict(os.environ)
        folders = (self.toolkit.library_folders if self.toolkit else []) + (self.packages.library_folders if self.packages else [])
        if folders:
            inherited = [path for path in environment.get("LD_LIBRARY_PATH", "").split(":") if path]
            environment["LD_LIBRARY_PATH"] = ":".join([str(folder) for folder in folders] + inherited)
        if self.shim:
            environment["TRIVET_CUDA_MODULE"] = str(self.build / "libtrivet_cuda_shim.so")
        environment.update({key: str(value) for key, value in more.items()})
        return environment

    def run(self, command, name, limit=None, **environment):
        """Runs a command to its end, within `limit` and the part's limit; returns (exit code, output). The log is kept."""
        with self.open_log(name) as log:
            job = process.start(command, self.environment(**environment), log)
            seconds = min(self.left(), limit or self.left())
            code = process.wait(job, seconds, f"{name} ({pathlib.Path(log.name).name})")
        return code, self.log_path(name).read_text(errors="replace")

    def log_path(self, name):
        return self.logs / f"{self.part}-{name}.log"

    def open_log(self, name):
        return open(self.log_path(name), "w")

    def log_exception(self):
        with self.open_log("exception") as log:
            traceback.print_exc(file=log)


def last_lines(text, count=3):
    """Returns the end of a command's output, on one line."""
    return " | ".join([line.strip() for line in text.splitlines() if line.strip()][-count:])[-600:]
