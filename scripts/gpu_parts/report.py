"""The results as one line per part, as a table and as a JSON file."""
import dataclasses
import json
import tarfile
import textwrap


class Failure(Exception):
    """A part found an error; the text says what."""


class Skipped(Exception):
    """A part cannot be run here; the text says why."""


@dataclasses.dataclass
class Result:
    name: str
    result: str  # ok, FAILED, skipped, no time
    seconds: float
    figure: str
    details: dict = dataclasses.field(default_factory=dict)

    @property
    def failed(self):
        return self.result == "FAILED"


def line(result):
    return f"{result.name:<10} {result.result:<8} {result.seconds:6.1f} s  {result.figure.splitlines()[0] if result.figure else ''}"


def table(facts, results):
    lines = [f"{key}: {value}" for key, value in facts.items()] + [""]
    lines += [f"{'part':<10} {'result':<8} {'seconds':>8}  figure"]
    for result in results:
        first, *more = textwrap.wrap(result.figure, 110) or [""]
        lines.append(f"{result.name:<10} {result.result:<8} {result.seconds:8.1f}  {first}")
        lines += [f"{'':29}{text}" for text in more]
    for result in results:
        lines += rows_of(result)
    return "\n".join(lines) + "\n"


def rows_of(result):
    """Returns the lines of the details below the summary: tables (lists of rows) and texts (one line or a list)."""
    lines = []
    for title, rows in result.details.items():
        if not (isinstance(rows, list) and rows and isinstance(rows[0], dict)):
            lines += ["", f"{result.name}: {title}"] + [f"  {text}" for text in (rows if isinstance(rows, list) else [rows])]
            continue
        keys = list(dict.fromkeys(key for row in rows for key in row))
        cells = [keys] + [[cell(row.get(key, "")) for key in keys] for row in rows]
        widths = [max(len(row[i]) for row in cells) for i in range(len(keys))]
        lines += ["", f"{result.name}: {title}"]
        lines += ["  " + "  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip() for row in cells]
    return lines


def cell(value):
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def write(out, facts, results, logs):
    parts = [dataclasses.asdict(result) for result in results]
    (out / "results.json").write_text(json.dumps({"facts": facts, "parts": parts}, indent=1) + "\n")
    (out / "table.txt").write_text(table(facts, results))
    with tarfile.open(out / "logs.tar.gz", "w:gz") as archive:
        for result in results:
            for log in sorted(logs.glob(f"{result.name}-*")):
                archive.add(log, log.name)
