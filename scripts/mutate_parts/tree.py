"""A copy of the working tree with its own build folder. Bugs are planted only in such copies."""
import fcntl
import os
import pathlib
import shutil
import subprocess


class TreeError(Exception):
    """The copy cannot be made, or it does not build without a mutant."""


class Copy:
    """The tree below `root`, copied to root/build/mutate-NUMBER and built in build/cpu-release below that.

    With these names ccache finds what was compiled in root/build/cpu-release: relative to the build folder all paths are the same.
    """

    def __init__(self, root, number, jobs):
        self.root = root
        self.folder = root / f"build/mutate-{number}"
        self.build_folder = self.folder / "build/cpu-release"
        self.jobs = jobs
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
        if (self.build_folder / "build.ninja").is_file():
            return  # the build itself configures again if that is needed
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

    def build(self, targets):
        """Builds these targets; returns "" or the compiler's output."""
        done = subprocess.run(["cmake", "--build", str(self.build_folder), "-j", str(self.jobs), "--target", *targets],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        return done.stdout[-3000:] if done.returncode else ""

    def program(self, name):
        return self.build_folder / "tests" / name

    def planted(self, mutant):
        return Planted(self.folder / mutant.file, mutant)


class Planted:
    """A context in which a mutant is planted. The old text is restored with a new file time, so that the build sees this change, too."""

    def __init__(self, path, mutant):
        self.path = path
        self.mutant = mutant

    def __enter__(self):
        self.text = self.path.read_text()
        self.path.write_text(self.mutant.plant(self.text))

    def __exit__(self, *_):
        self.path.write_text(self.text)


def copy_if_different(source, target):
    content = source.read_bytes()
    if not target.is_file() or target.read_bytes() != content:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    shutil.copymode(source, target)
