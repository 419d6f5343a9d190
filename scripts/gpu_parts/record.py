"""The figures of a session: written as they come, each next to its prediction."""
import dataclasses
import os
import pathlib
import re
import threading

PREDICTIONS = pathlib.Path("bench/cuda/predictions.tsv")
# Data-sheet rates of a card as multiples of an H200's, as in autotune/cluster.cpp: 3,350 and 4,800 GB/s, 989 TFLOP/s both.
MEMORY_RATE = {"H200": 1.0, "H100": 3350 / 4800}


@dataclasses.dataclass
class Prediction:
    value: str            # of an H200
    memory_share: object  # of the time, that the memory's rate decides; None: the figure is the same on every card
    source: str


def read_predictions(path=PREDICTIONS):
    """Returns {"part/figure": Prediction}."""
    found = {}
    for line in pathlib.Path(path).read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        figure, value, share, source = line.split("\t")
        found[figure] = Prediction(value, None if share == "-" else float(share), source)
    return found


def card_of(gpu_name):
    return next((card for card in MEMORY_RATE if card in (gpu_name or "")), None)


def for_card(prediction, unit, card):
    """Returns the predicted value on a card, as a number or a text, and its source; (None, why) if there is none."""
    value = number(prediction.value)
    if prediction.memory_share is None or value is None:
        return prediction.value if value is None else value, prediction.source
    if card is None:
        return None, "no prediction for this card"
    longer = 1 - prediction.memory_share + prediction.memory_share / MEMORY_RATE[card]
    scaled = "" if longer == 1 else f"; an H100's memory: {longer:.2f} times the time"
    return (value * longer if unit in TIMES else value / longer), prediction.source + scaled


TIMES = ("ms", "us", "s")


def number(text):
    try:
        return float(text)
    except ValueError:
        return None


def shown(value):
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


ROUND = r", round \d+$"  # a prediction is of every round
HEAD = ["part", "figure", "value", "unit", "predicted", "measured / predicted", "where the prediction is from"]


class Record:
    """Appends to NAME.tsv in the folder `out` at once; NAME.md is the same as a table, written again after every part."""

    def __init__(self, out, name, card, predictions):
        self.out, self.name, self.card, self.predictions = out, name, card, predictions
        self.rows, self.parts = [], []
        self.lock = threading.Lock()  # parts run commands at the same time
        self.begun = set()
        self.append(f"{name}.tsv", "\t".join(HEAD))

    def append(self, file, line):
        """Adds a line to a file in the folder; the first time in this session, the file is begun anew."""
        with self.lock, open(self.out / file, "a" if file in self.begun else "w") as stream:
            self.begun.add(file)
            stream.write(line + "\n")
            stream.flush()
            os.fsync(stream.fileno())

    def figure(self, part, figure, value, unit=""):
        prediction = self.predictions.get(f"{part}/{re.sub(ROUND, '', figure)}")
        predicted, source = for_card(prediction, unit, self.card) if prediction else (None, "")
        ratio = ""
        if isinstance(predicted, float) and isinstance(value, (int, float)) and predicted:
            ratio = f"{value / predicted:.3f}"
        row = [part, figure, shown(value), unit, "-" if predicted is None else shown(predicted), ratio, source]
        row = [" ".join(cell.split()) for cell in row]
        self.rows.append(row)
        self.append(f"{self.name}.tsv", "\t".join(row))
        print(f"  {row[1]}: {row[2]} {row[3]}".rstrip() + ("" if row[4] == "-" else f" (predicted {row[4]}{', ' + ratio + ' of it' if ratio else ''})"), flush=True)

    def part(self, result):
        """Adds what became of a part, and writes the table."""
        self.parts.append(result)
        self.append(f"{self.name}.tsv", "\t".join([result.name, "(the part)", result.result, "", "-", "", " ".join(result.figure.split())]))
        lines = [f"# {self.name}", "", "| part | result | seconds | |", "|---|---|---|---|"]
        lines += [f"| {part.name} | {part.result} | {part.seconds:.1f} | {cell_text(part.figure)} |" for part in self.parts]
        lines += ["", "| " + " | ".join(HEAD) + " |", "|---" * len(HEAD) + "|"]
        lines += ["| " + " | ".join(cell_text(cell) for cell in row) + " |" for row in self.rows]
        (self.out / f"{self.name}.md").write_text("\n".join(lines) + "\n")

    def last_line(self):
        """Says what ran, failed, was cut off."""
        groups = {"ran": "ok", "failed": "FAILED", "cut off by the time": "cut", "skipped": "skipped"}
        texts = []
        for what, result in groups.items():
            names = [part.name for part in self.parts if part.result == result]
            texts.append(f"{what}: {', '.join(names) or 'none'}")
        return f"{self.name}: {len(self.rows)} figures; " + "; ".join(texts)


def cell_text(text):
    return " ".join(str(text).split()).replace("|", "\\|")
