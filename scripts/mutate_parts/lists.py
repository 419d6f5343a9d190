"""Lists of mutants, tests/mutants/NAME.txt: blocks separated by empty lines, one mutant per block.

  # the loss scale falls too fast
  file: engine/loss_scale.cpp
  -  if (overflow) scale_ /= 2;
  +  if (overflow) scale_ /= 4;
  tests: test_engine:LossScale.* test_equivalence
  explained: why no test can or need notice it (only where it survives)

The text of the - lines must occur exactly once in the file; the text of the + lines replaces it. Text begins after the sign and
one space. `tests` names test programs, each with an optional GoogleTest filter after a colon. A line that starts with two
spaces continues the field before it.
"""
import dataclasses
import hashlib
import pathlib
import re


class ListError(Exception):
    """A list cannot be used; the text names the list and the line."""


@dataclasses.dataclass(frozen=True)
class TestRun:
    """A test program and the tests of it to run."""
    program: str
    filter: str = "*"

    def __str__(self):
        return self.program if self.filter == "*" else f"{self.program}:{self.filter}"


@dataclasses.dataclass(frozen=True)
class Mutant:
    place: str  # list:line
    title: str
    file: str
    old: str
    new: str
    tests: tuple
    explained: str = ""

    @property
    def folder(self):
        return self.file.split("/")[0]

    @property
    def key(self):
        """Identifies this mutant in a file of results; title and explanation are not part of it."""
        parts = [self.file, self.old, self.new, *map(str, self.tests)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    def plant(self, text):
        """Returns the text of the file with the bug in it."""
        count = text.count(self.old)
        if count != 1:
            raise ListError(f"{self.place}: the text of the - lines occurs {count} times in {self.file}; it must occur exactly once. "
                            "Adapt the mutant to the code as it is now, or remove it")
        return text.replace(self.old, self.new)


def read_lists(paths):
    return [mutant for path in paths for mutant in read_list(path)]


def read_list(path):
    blocks, block = [], []
    for number, line in enumerate(path.read_text().splitlines() + [""], 1):
        if line.strip():
            block.append((number, line))
        elif block:
            blocks.append(block)
            block = []
    return [read_block(path, block) for block in blocks if any(not line.startswith("#") for _, line in block)]


def read_block(path, block):
    place = f"{path.name}:{block[0][0]}"
    title, old, new, fields, last = [], [], [], {}, None
    for number, line in block:
        if line.startswith("#"):
            title.append(line[1:].strip())
        elif line[0] in "-+":
            (old if line[0] == "-" else new).append(line[2:] if line[1:2] == " " else line[1:])
        elif line.startswith("  ") and last:
            fields[last] += " " + line.strip()
        elif match := re.fullmatch(r"(file|tests|explained):\s*(.+)", line):
            last = match[1]
            if last in fields:
                raise ListError(f"{path.name}:{number}: a second {last}: in the same mutant; use only one")
            fields[last] = match[2].strip()
        else:
            raise ListError(f"{path.name}:{number}: {line[:80]!r} is not accepted; "
                            "a line starts with #, file:, -, +, tests: or explained:")
    for name, value in (("# that says what the bug is", title), ("file:", fields.get("file")), ("- line", old), ("tests:", fields.get("tests"))):
        if not value:
            raise ListError(f"{place}: a mutant needs a line {name}")
    if old == new:
        raise ListError(f"{place}: the - lines and the + lines are the same; a mutant must change something")
    runs = tuple(TestRun(*word.split(":", 1)) for word in fields["tests"].split())
    return Mutant(place, " ".join(title), fields["file"], "\n".join(old), "\n".join(new), runs, fields.get("explained", ""))


def default_lists(root):
    return sorted(pathlib.Path(root, "tests/mutants").glob("*.txt"))
