"""Which mutants to try, and which tests ought to notice them."""
import dataclasses
import pathlib
import random
import re
import subprocess

from mutate_parts.generate import mutants_of

FOLDERS = ("core", "kernels", "comm", "hvd", "pipeline", "tensor_parallel", "model", "zero", "data", "interchange", "report", "trainer",
           "engine", "embed", "c", "autotune", "cli")
CUDA = re.compile(r"/(cuda|nccl)/|\.cuh?$")
# The tests of a folder, tests/NAME, come first. These test its behaviour, too, or instead; the quickest come first.
FURTHER_TESTS = {
    "core": ("zero", "comm", "engine"), "kernels": ("model", "engine"), "comm": ("launch",), "hvd": (), "pipeline": ("engine",),
    "tensor_parallel": ("model", "equivalence"), "model": ("hugging_face", "engine", "equivalence"), "zero": ("engine", "equivalence"),
    "config": ("cli",), "data": ("hugging_face", "engine"), "checkpoint": ("engine", "cli"), "foreign": ("hugging_face",),
    "interchange": ("hugging_face",), "hugging_face": ("cli",), "monitor": ("engine",), "report": ("cli",),
    "engine": ("equivalence", "cli"), "trainer": ("engine", "cli"), "embed": ("c",), "c": (), "autotune": ("cli",), "cli": ("launch",),
    "launch": ("cli",)}


class NothingToRun(Exception):
    """No mutant can be tried; the text says why."""


@dataclasses.dataclass(frozen=True)
class Mutant:
    file: str
    offset: int
    line: int
    old: str
    new: str
    what: str  # the rule of the generator, or the title in the list of mutants by hand
    tests: tuple  # PROGRAM or PROGRAM:FILTER

    @property
    def key(self):
        """Identifies this mutant in a file of results."""
        return f"{self.file}:{self.line}:{self.offset} {self.old!r} -> {self.new!r} {' '.join(self.tests)}"

    def plant(self, text):
        return text[: self.offset] + self.new + text[self.offset + len(self.old) :]

    def diff(self, text):
        begin = text.rfind("\n", 0, self.offset) + 1
        end = text.find("\n", self.offset + len(self.old))
        old, new = text[begin:end], self.plant(text)[begin : end + len(self.new) - len(self.old)]
        return "\n".join([f"-{line}" for line in old.split("\n")] + [f"+{line}" for line in new.split("\n")])


def git(root, *words):
    done = subprocess.run(["git", *words], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise NothingToRun(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def product_files(root, parts):
    """The C++ files that can be mutated, and the number of CUDA files, which cannot."""
    names = git(root, "ls-files", "--cached", "--others", "--exclude-standard", *FOLDERS).splitlines()
    names = [name for name in dict.fromkeys(names) if not parts or any(f"{name}/".startswith(f"{part.rstrip('/')}/") for part in parts)]
    cpp = [name for name in names if re.search(r"\.(cpp|h|inl)$", name) and not CUDA.search(name) and (root / name).is_file()]
    return cpp, sum(1 for name in names if CUDA.search(name))


def tests_of(root, file):
    """The test programs for a file: first the tests that have its name, then all."""
    for name in reversed(file.split("/")[:-1]):
        own = (name,) if any((root / "tests" / name).glob("**/*_test.cpp")) else ()
        if own or name in FURTHER_TESTS:
            programs = [f"test_{folder}" for folder in dict.fromkeys(own + FURTHER_TESTS.get(name, ()))]
            concept = "".join(word.capitalize() for word in re.sub(r"_loops$", "", pathlib.Path(file).stem).split("_"))
            return (f"{programs[0]}:*{concept}*", *programs)
    raise NothingToRun(f"{file}: no tests are known for this folder; add it to FURTHER_TESTS in scripts/mutate_parts/choose.py")


def generated(root, file, tests, lines=None):
    text = (root / file).read_text()
    for offset, old, new, rule in mutants_of(text):
        line = text.count("\n", 0, offset) + 1
        if lines is None or line in lines:
            yield Mutant(file, offset, line, old, new, rule, tests or tests_of(root, file))


def base_of_change(root):
    """Where this branch left main; on main itself, the commit before the last."""
    on_main = git(root, "rev-parse", "--abbrev-ref", "HEAD").strip() == "main"
    return "HEAD~1" if on_main else git(root, "merge-base", "HEAD", "main").strip()


def changed_lines(root, revision):
    """The lines that were added since a revision, committed or not: {file: set of lines}."""
    lines, file = {}, ""
    for line in git(root, "diff", "--no-ext-diff", "--no-color", "-M", "-U0", revision, "--", *FOLDERS).splitlines():
        if line.startswith("+++ "):
            file = line.removeprefix("+++ ").removeprefix("b/")
        elif match := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            lines.setdefault(file, set()).update(range(int(match[1]), int(match[1]) + int(match[2] or 1)))
    for file in git(root, "ls-files", "--others", "--exclude-standard", *FOLDERS).splitlines():
        lines[file] = range(1, 1 << 30)
    return lines


def sample(root, files, count, seed, tests):
    """Draws files, those with more lines more often, and a mutant of each."""
    draw, mutants_left, drawn = random.Random(seed), {}, []
    sizes = {file: (root / file).read_text().count("\n") for file in files}
    while len(drawn) < count and any(sizes.values()):
        file = draw.choices(list(sizes), list(sizes.values()))[0]
        if file not in mutants_left:
            mutants_left[file] = list(generated(root, file, tests))
            draw.shuffle(mutants_left[file])
        if mutants_left[file]:
            drawn.append(mutants_left[file].pop())
        else:
            sizes[file] = 0
    return drawn


def by_hand(root, path, tests):
    """Reads a list of mutants; CONTRIBUTING.md, "Mutants", describes its format."""
    for block in re.split(r"\n\n+", path.read_text().strip()):
        match = re.fullmatch(r"((?:# .*\n)+)file: (.+)\n((?:-.*\n)+)((?:\+.*\n)+)tests: (.+)", block)
        if not match:
            raise NothingToRun(f"{path}: not as a mutant must be (# title, file:, - lines, + lines, tests:):\n{block}")
        title, old, new = (re.sub(r"^[-+#] ?", "", part, flags=re.MULTILINE)[:-1] for part in (match[1], match[3], match[4]))
        text = (root / match[2]).read_text() if (root / match[2]).is_file() else ""
        if text.count(old) != 1:
            raise NothingToRun(f"{path}: {title}: the - lines occur {text.count(old)} times in {match[2]}, not once; adapt or remove the mutant")
        offset = text.index(old)
        yield Mutant(match[2], offset, text.count("\n", 0, offset) + 1, old, new, title, tests or tuple(match[5].split()))
