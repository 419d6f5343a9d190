"""The configs of examples/ and tiny data on which they can be trained, for scripts/test_examples and scripts/many_hosts."""
import gzip
import json
import math
import pathlib
import random
import string
import struct
import subprocess
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
STEPS = 2
RANKS = (1, 2, 4)
SECONDS = 300  # that a command may take
EPOCHS = ["training.epochs=0", f"training.steps={STEPS}", f"training.evaluate_every={STEPS}"]  # instead of whole epochs
# For each config: its batch, which all runs divide into the same microbatches, and further keys.
RUNS = {
    "05_mnist/horovod.json": (16, EPOCHS),
    "05_mnist/tensorflow.json": (16, EPOCHS),
    "05_mnist/vision_transformer.json": (16, EPOCHS),
    "06_cifar10/ddp.json": (16, EPOCHS),
    "06_cifar10/deepspeed.json": (16, [*EPOCHS, "fp16.initial_scale_power=10"]),  # the default skips the first steps
    "06_cifar10/deepspeed_fashion_mnist.json": (16, [*EPOCHS, "data.train=mnist", "fp16.initial_scale_power=10"]),
    "06_cifar10/fashion_mnist.json": (16, [*EPOCHS, "data.train=mnist"]),
    "10_genomics/genomics.json": (8, [*EPOCHS, "training.evaluate_samples=4", "data.validation_fraction=0.2"]),
    "11_handwriting/handwriting.json": (16, EPOCHS),
    "12_man_pages/man_pages.json": (8, [*EPOCHS, "training.evaluate_samples=4", "data.validation_fraction=0.2"]),
}
# Configs that only the script `run` in their folder can use, which makes their data (or is no `trivet train`); scripts/test_examples runs it.
RUN_BY_SCRIPTS = ("13_fine_tune/deepspeed.json", "14_two_hosts/two_hosts.json", "15_embedded/trainer.json", "16_compare/adamw.json",
                  "16_compare/muon.json")
NUMBERS = random.Random(1234)


class Failed(Exception):
    """What did not hold, with everything that a reader needs to know."""


def fail(message):
    raise Failed(message)


def run(command, folder, environment=None, code=0):
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        fail(f"not ended after {SECONDS} s: {' '.join(str(word) for word in command)}")
    if done.returncode != code:
        words = " ".join(str(word) for word in command)
        fail(f"exit code {done.returncode} instead of {code}: {words}\n{done.stdout}{done.stderr}")
    return done


def make_mnist(folder):
    """MNIST's four files with a few images, each of random pixels."""
    folder.mkdir()
    for name, count in (("train", 64), ("t10k", 10)):
        pixels = NUMBERS.randbytes(count * 28 * 28)
        (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, count, 28, 28) + pixels)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, count) + bytes(i % 10 for i in range(count)))


def make_cifar10(folder):
    """CIFAR-10's binary archive with a few images in each file."""
    folder.mkdir()
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        (folder / name).write_bytes(b"".join(bytes([i % 10]) + NUMBERS.randbytes(3 * 32 * 32) for i in range(16)))


def png(columns, rows):
    """A gray PNG file with random pixels."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    pixels = b"".join(b"\0" + NUMBERS.randbytes(columns) for _ in range(rows))
    header = struct.pack(">2I5B", columns, rows, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")


def make_words(trivet, folder):
    """Images of words in which all letters occur, drawn by the example's program if that is possible."""
    words = sorted({first + "".join(NUMBERS.choices(string.ascii_lowercase, k=NUMBERS.randint(3, 9)))
                    for first in string.ascii_lowercase for _ in range(20)})
    program = trivet.parent / "examples/11_handwriting/example_11_handwriting"
    if not program.exists():
        print(f"11_handwriting: skipped drawing words: {program} was not built (it needs libfreetype-dev)", flush=True)
    else:
        (folder.parent / "list.txt").write_text("\n".join(words))
        command = [program, "--words", "list.txt", "--output", folder.name, "--train", "64", "--test", "10"]
        done = subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, timeout=SECONDS)
        if done.returncode == 0:
            return
        if done.returncode != 77:
            fail(f"exit code {done.returncode}: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
        print(f"11_handwriting: skipped drawing words: {done.stderr.strip()}", flush=True)
    for part, some in (("train", words[::8]), ("test", words[1::50])):
        (folder / part).mkdir(parents=True)
        for word in some:
            (folder / part / f"{word}.png").write_bytes(png(128, 32))
        (folder / part / "labels.txt").write_text("".join(f"{word}.png\t{word}\n" for word in some))


def bases(count):
    return "".join(NUMBERS.choices("ACGT", k=count))


def make_fasta(path):
    """Two sequences with an unknown part, small letters, Windows' line breaks, a header that is not UTF-8, and no line break at the end.
    Returns the text that should come of it."""
    first, second = bases(3000), bases(1500)
    lines = [first[i:i + 70] for i in range(0, 2100, 70)] + ["NNNNNNNN", "nnRY"] + [first[2100:].lower()]
    path.write_bytes("\r\n".join([">first sequence, ACGT", *lines, ">s\xe9quence CAT", second]).encode("latin-1"))
    return "\n" + first[:2100] + "\n" + first[2100:] + "\n" + second


def make_man_pages(folder):
    """A few pages with options, of which one is packed, and one that is no manual page. Returns how many conversations they give."""
    folder.mkdir()
    options = 12
    for number in range(8):
        command = f"tool{number}"
        text = f'.TH {command} 1\n.SH NAME\n{command} \\- work on {number} \\fIthings\\fR\n.SH SYNOPSIS\n.B {command}\n[OPTION]... FILE\n'
        text += ".SH OPTIONS\n" + "".join(f".TP\n\\fB\\-{letter}\\fR\nuse {letter * 3} {number} times\n" for letter in string.ascii_lowercase[:options])
        if number % 2:
            (folder / f"{command}.1").write_text(text)
        else:
            (folder / f"{command}.1.gz").write_bytes(gzip.compress(text.encode()))
    (folder / "README").write_text("no manual page\n")
    return 8 * (2 + options)


def make_instructions(trivet, folder):
    count = make_man_pages(folder / "man")
    lines = run([EXAMPLES / "12_man_pages/man_pages_to_jsonl", "man"], folder).stdout
    if len(lines.splitlines()) != count:
        fail(f"12_man_pages/man_pages_to_jsonl wrote {len(lines.splitlines())} conversations instead of {count}:\n{lines}")
    (folder / "instructions.jsonl").write_text(lines)
    run([trivet, "data", "prepare", "instructions.jsonl", "--chat-template", "chatml", "--train-bpe", "400", "--output",
         "instructions.tokens"], folder)


def make_data(trivet, folder):
    """What all configs read, as they name it; trivet is to be started in this folder."""
    make_mnist(folder / "mnist")
    make_cifar10(folder / "cifar-10-batches-bin")
    make_words(trivet, folder / "words")
    make_fasta(folder / "genome.fasta")
    (folder / "genome.txt").write_text(run([EXAMPLES / "10_genomics/fasta_to_text", "genome.fasta"], folder).stdout)
    run([trivet, "data", "prepare", "genome.txt", "--vocabulary", "characters", "--output", "genome.tokens"], folder)
    make_instructions(trivet, folder)


def settings(name):
    """The keys with which every run of this config computes the same microbatches, in a few steps.

    Each rank has at least two of them in a step: with one, run mode would add them in the order of a single rank, and an equality
    would say nothing about layout mode."""
    batch, keys = RUNS[name]
    return [*keys, f"train_batch_size={batch}", f"train_micro_batch_size_per_gpu={batch // (2 * max(RANKS))}",
            "checkpoint.directory=", "steps_per_print=1"]


def losses(metrics):
    """All digits of the loss and the gradient norm of each step, and of the loss of each evaluation, of a run with --metrics METRICS,
    which must be a .jsonl file. (loss_bits has 32 bits: sums that were rounded otherwise may not show in them for many steps.)"""
    found = []
    for path in (metrics, metrics.with_suffix(".evaluation.jsonl")):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if entry["loss"] is None or not math.isfinite(entry["loss"]):
                fail(f"{path.name}: the loss of step {entry['step']} is {entry['loss']}")
            found.append(("evaluation" if path is not metrics else "step", entry["step"], entry["loss"], entry.get("grad_norm")))
    if len(found) != STEPS + 1:
        fail(f"{metrics.name}: {len(found)} losses instead of {STEPS + 1}: {found}")
    return found
