#!/usr/bin/env python3
"""Tests scripts/gpu_check session, above all that nothing is lost when a command crashes, hangs or is cut off.

TRIVET and TEST_CUDA name the programs; without them the tests that need one are skipped.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from gpu_parts import carry, first_command, kernel_tests, second_command, short_session, speed  # noqa: E402
from gpu_parts.lines import run_lines  # noqa: E402
from gpu_parts.record import Record, card_of, for_card, read_predictions  # noqa: E402
from gpu_parts.report import Failure, Skipped  # noqa: E402
from gpu_parts.training import read_config  # noqa: E402

PREDICTIONS = read_predictions(ROOT / "bench/cuda/predictions.tsv")


def shell(text):
    return ["sh", "-c", text]  # a shell starts at once, also on a busy machine


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.stdout, sys.stdout = sys.stdout, open(os.devnull, "w")  # the record prints its figures

    def tearDown(self):
        sys.stdout.close()
        sys.stdout = self.stdout
        self.folder.cleanup()

    def record(self, card="H100", predictions=PREDICTIONS):
        return Record(self.path, "first", card, predictions)

    def rows(self):
        return [line.split("\t") for line in (self.path / "first.tsv").read_text().splitlines()[1:]]

    def session(self, seconds=20):
        """What a part sees of a session."""
        end = time.monotonic() + seconds
        record = self.record()
        session = types.SimpleNamespace(record=record, left=lambda: end - time.monotonic(), shim=False)
        session.run_lines = lambda command, name, seconds, on_line=lambda line: None, silence=None, **environment: \
            run_lines(command, {**os.environ, **environment}, min(seconds, session.left()), on_line, silence)
        return session


class RunLines(unittest.TestCase):
    def test_lines_come_before_a_crash_a_hang_and_a_limit(self):
        cases = [("echo a; kill -SEGV $$", "ended", -11, "was killed by signal 11"),
                 ("echo a; exit 7", "ended", 7, "exit code 7"),
                 ("echo a; exec sleep 60", "silent", None, "hangs: it printed nothing for too long and was ended"),
                 ("while true; do echo a; sleep 0.1; done", "limit", None, "ended at its time limit"),
                 ("echo a; sleep 60 & exit 0", "ended", 0, "exit code 0")]
        for text, how, code, described in cases:
            with self.subTest(text):
                lines = []
                ended = run_lines(shell(text), dict(os.environ), 0.5 if how == "limit" else 50, lines.append, silence=0.4 if how == "silent" else None)
                self.assertEqual((ended.how, ended.code, ended.describe()), (how, code, described))
                self.assertEqual(lines[0], "a")


# Stands in for a program of GoogleTest: Suite.Crashes crashes, Suite.Hangs hangs, Suite.Fails fails unless it runs alone.
PROGRAM = r"""
for word; do case $word in --gtest_filter=*) tests=$(echo "${word#*=}" | tr : ' ');; esac; done
for test in $tests; do
  echo "[ RUN      ] $test"
  case $test in
    Suite.Crashes) kill -ABRT $$;;
    Suite.Hangs) exec sleep 60;;
    Suite.Races) echo "========= Error: Race reported between Write access at kernel";;
  esac
  if [ $test = Suite.Fails ] && [ "$tests" != Suite.Fails ]; then
    echo "[  FAILED  ] $test, where GetParam() = 4 (3 ms)"
  else
    echo "[       OK ] $test (3 ms)"
  fi
done
echo "[  FAILED  ] Suite.Fails"
"""


class KernelTests(Folder):
    def run_of(self, tests, tool="", seconds=20):
        program = self.path / "test_program.sh"
        program.write_text(PROGRAM)
        run = kernel_tests.TestRun(self.session(seconds), program, tests, tool, ["sh"], silence=0.4 if seconds > 5 else 50)
        return run, run.run(run.session.left)

    def test_a_crash_and_a_hang_take_no_other_result(self):
        run, results = self.run_of(["Suite.A", "Suite.Crashes", "Suite.Fails", "Suite.Hangs", "Suite.Z"])
        run.rerun_failed_alone(run.session.left)
        self.assertEqual({test: result.state for test, result in results.items()},
                         {"Suite.A": "passed", "Suite.Crashes": "crashed", "Suite.Fails": "failed", "Suite.Hangs": "hung", "Suite.Z": "passed"})
        self.assertEqual(results["Suite.Fails"].note, "alone: passed")
        kept = [line.split("\t")[1:3] for line in (self.path / "first-tests.tsv").read_text().splitlines()]
        self.assertEqual(kept, [["Suite.A", "passed"], ["Suite.Crashes", "crashed"], ["Suite.Fails", "failed"], ["Suite.Hangs", "hung"],
                                ["Suite.Z", "passed"], ["Suite.Fails", "passed"]])

    def test_a_finding_belongs_to_the_test_that_ran(self):
        _, results = self.run_of(["Suite.A", "Suite.Races", "Suite.Z"], "racecheck")
        self.assertEqual([result.bad for result in results.values()], [False, True, False])
        self.assertEqual(kernel_tests.verdict(results.values()), "findings")
        self.assertIn("Suite.Races has findings (Error: Race reported", kernel_tests.problems_of(results)[0])

    def test_what_the_time_cut_off_is_not_run(self):
        run, results = self.run_of(["Suite.A", "Suite.Hangs", "Suite.Z"], seconds=0.9)
        self.assertEqual([result.state for result in results.values()], ["passed", "not run", "not run"])
        self.assertEqual(results["Suite.Hangs"].note, "cut off by the time")

    def test_a_program_that_ends_before_its_first_test_is_a_failure(self):
        run = kernel_tests.TestRun(self.session(), pathlib.Path("/bin/false"), ["Suite.A"])
        with self.assertRaisesRegex(Failure, "false exit code 1"):
            run.run(run.session.left)

    @unittest.skipUnless(os.environ.get("TEST_CUDA"), "TEST_CUDA is not set")
    def test_every_item_has_tests(self):
        tests = kernel_tests.list_tests(subprocess.run([os.environ["TEST_CUDA"], "--gtest_list_tests"], capture_output=True, text=True).stdout)
        self.assertGreater(len(tests), 300)
        for lists in (kernel_tests.NEVER_LAUNCHED, kernel_tests.NOT_ON_RECORD):
            for patterns in lists.values():
                for pattern in patterns:
                    self.assertTrue(kernel_tests.tests_of([pattern], tests), pattern)

    def test_some_tests_of_each_name(self):
        tests = ["A.One", "B/C.Two/0", "B/C.Two/1", "B/C.Two/2", "B/C.Two/3", "A.Three"]
        self.assertEqual(kernel_tests.some_of(tests, 2), ["A.One", "B/C.Two/0", "B/C.Two/2", "A.Three"])


class Figures(Folder):
    def test_are_on_disk_at_once_with_their_predictions(self):
        record = self.record()
        record.figure("peaks", "copy in device memory", 2900.0, "GB/s")
        self.assertEqual(self.rows()[-1][2:6], ["2900", "GB/s", "2917", "0.994"])
        record.figure("peaks", "something\tnew", 1, "")
        self.assertEqual(self.rows()[-1], ["peaks", "something new", "1", "", "-", "", ""])
        record.figure("models", "llama_1b, untuned, round 2", 75_000.0, "tokens/s")
        self.assertEqual(self.rows()[-1][4], "75080")
        record.figure("kernels", "norm", "passed (12 passed)")
        self.assertEqual(self.rows()[-1][4], "passed")

    def test_predictions_follow_the_memory_of_the_card(self):
        time_of_norms = PREDICTIONS["kernels of a step/gpt2_124m: element-wise, norms, biases"]
        self.assertAlmostEqual(for_card(time_of_norms, "us", "H200")[0], 0.184)
        self.assertAlmostEqual(for_card(time_of_norms, "us", "H100")[0], 0.184 * 4800 / 3350)
        product = PREDICTIONS["peaks/product of 8192 x 8192 x 8192, bfloat16"]
        self.assertEqual(for_card(product, "TFLOP/s", "H100")[0], 798)
        speed_of_model = PREDICTIONS["models/gpt2_124m, untuned"]
        self.assertAlmostEqual(for_card(speed_of_model, "tokens/s", "H100")[0] / 536_600, 1 / (1 + 0.1556 * (4800 / 3350 - 1)), 3)
        self.assertIsNone(for_card(speed_of_model, "tokens/s", None)[0])
        self.assertEqual([card_of(name) for name in ("NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA L4", None)], ["H200", "H100", None, None])

    def test_predictions_are_of_parts_that_exist(self):
        parts = {part.name for _, list_of in short_session.COMMANDS.values() for part in list_of}
        parts |= {f"{name}, {tool}" for name in ("never launched", "not on record") for tool in ("memcheck", "racecheck")}
        self.assertEqual({figure.split("/", 1)[0] for figure in PREDICTIONS} - parts, set())
        for name, lists in (("never launched", kernel_tests.NEVER_LAUNCHED), ("not on record", kernel_tests.NOT_ON_RECORD)):
            for item in lists:
                for part in ("kernels", f"{name}, memcheck", f"{name}, racecheck"):
                    self.assertIn(f"{part}/{item}", PREDICTIONS)

    def test_utilization_leaves_out_the_input_embedding(self):
        # 22 layers of 2048, 4 of 32 heads for keys, SwiGLU of 5632, a head of 32000, 1024 tokens
        elements = 22 * (2 * 2048 ** 2 + 2 * 2048 * 256 + 3 * 2048 * 5632) + 2048 * 32000
        config = read_config(ROOT / "bench/cuda/configs/llama_1b.json")
        planned = {"model_flops_per_step": (6 * elements + 6 * 22 * 2048 * 1024) * 1024 * config["train_batch_size"]}
        self.assertAlmostEqual(100 * speed.utilization(77_480, planned, config), 50.8, 1)

    @unittest.skipUnless(os.environ.get("TRIVET"), "TRIVET is not set")
    def test_utilization_of_the_measured_models(self):
        for name, rate, percent in (("gpt2_124m", 516_952, 41.7), ("gpt2_1.5b", 47_531, 47.1), ("llama_1b", 77_480, 50.8)):
            config = read_config(ROOT / f"bench/cuda/configs/{name}.json")
            file = self.path / "config.json"
            file.write_text(json.dumps(config))
            planned = json.loads(subprocess.run([os.environ["TRIVET"], "plan", file, "--json"], capture_output=True, text=True, check=True).stdout)
            self.assertAlmostEqual(100 * speed.utilization(rate, planned, config), percent, 1, name)


class Tables(unittest.TestCase):
    def test_lines_of_benchmarks_are_read(self):
        line = "blocks.0     bfloat16->float32 8192x768x3072 NT bias strides 768,768,3072 alignment 16,16,16           598.1          670.2  598.1 670.2 12.0"
        found = second_command.PRODUCT.match(line)
        self.assertEqual((found["layer"], found["first"], found["best"], found["all"].split()), ("blocks.0", "598.1", "670.2", ["598.1", "670.2", "12.0"]))
        self.assertIsNone(second_command.PRODUCT.match("layer        product      first TFLOP/s  best TFLOP/s  all"))
        found = second_command.RATE.match("dropout, sum and layer_norm 768      123.4       2900      70%")
        self.assertEqual((found["name"], found["share"]), ("dropout, sum and layer_norm 768", "70"))
        found = second_command.LINE.match("matmul                       nt+          bfloat16  8192x768x3072                   12       61.2      0.734   41.0%  631.1 TFLOP/s")
        self.assertEqual((found["kernel"], found["ms"], found["rate"]), ("matmul", "0.734", "631.1 TFLOP/s"))

    def test_kernels_have_classes(self):
        for kernel, name in (("attention", "attention forward"), ("attention_backward", "attention backward"), ("matmul", "products"),
                             ("layer_norm", "element-wise, norms, biases"), ("cross_entropy", "cross-entropy")):
            self.assertEqual(second_command.class_of(kernel), name)


class Parts(Folder):
    def test_go_on_after_whatever_happens_to_one(self):
        def fails(_):
            raise Failure("wrong bits")

        def skips(_):
            raise Skipped("no PyTorch")

        def has_a_bug(_):
            return {}["key"]

        def overruns(session):
            session.run(shell("sleep 60"), "sleeper", 0.1)

        def works(session):
            session.record.figure("works", "number", 1)
            return "fine"

        functions = {"fails": fails, "skips": skips, "bug": has_a_bug, "overruns": overruns, "works": works}
        session, record = self.short_session()
        now = time.monotonic()
        short_session.run_parts([first_command.Part(name, "", 10, function) for name, function in functions.items()], session, now + 50, 1)
        short_session.run_parts([first_command.Part("late", "", 10, works)], session, now, 1)
        self.assertEqual([part.result for part in record.parts], ["FAILED", "skipped", "FAILED", "cut", "ok", "cut"])
        self.assertEqual(record.last_line(), "first: 1 figures; ran: works; failed: fails, bug; cut off by the time: overruns, late; skipped: skips")
        self.assertIn("| works | ok |", (self.path / "first.md").read_text())

    def test_get_what_earlier_ones_left(self):
        parts = [first_command.Part("", "", limit, None) for limit in (10, 20, 30)]
        self.assertEqual(short_session.seconds_of(parts, 0, 60, 1), 10)
        self.assertEqual(short_session.seconds_of(parts, 1, 57, 1), 27)   # the first took 3
        self.assertEqual(short_session.seconds_of(parts, 2, 55, 1), 55)
        self.assertEqual(short_session.seconds_of(parts, 1, 45, 1), 20)   # the first overran
        self.assertEqual(short_session.seconds_of(parts, 2, 8, 1), 8)
        self.assertEqual(short_session.seconds_of(parts, 1, 100, 2), 40)

    def short_session(self):
        args = types.SimpleNamespace(build=self.path, shim=False, deps=None, patience=1, python=sys.executable)
        record = self.record()
        session = short_session.ShortSession(args, None, self.path, record, carry.Libraries([], sys.executable))
        self.addCleanup(session.log.close)
        return session, record


class Carried(Folder):
    def test_a_missing_library_is_named_with_what_to_install(self):
        problems = carry.Libraries(["libcublasLt.so.99"], sys.executable).problems()
        self.assertEqual(len(problems), 1)
        self.assertRegex(problems[0], "libcublasLt.so.99 was not found .*: install the CUDA toolkit 99 with NCCL, or the wheel nvidia-cublas")

    @unittest.skipIf(shutil.which("nvidia-smi"), "there is a GPU")
    def test_a_packed_folder_runs_where_it_is_unpacked(self):
        build, folder = self.path / "build", self.path / "folder"
        for name in carry.PROGRAMS:
            (build / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy("/bin/true", build / name)
        nvcc = self.path / "nvcc"
        nvcc.write_text("#!/bin/sh\necho Cuda compilation tools, release 13.0, V13.0.88\n")
        nvcc.chmod(0o755)
        session = types.SimpleNamespace(program=lambda name: build / name, toolkit=types.SimpleNamespace(nvcc=nvcc), build=build, environment=lambda: None,
                                        gpu=types.SimpleNamespace(architecture="90-real"))
        before = os.getcwd()
        os.chdir(ROOT)
        try:
            size = carry.pack(session, folder, self.path / "work")
        finally:
            os.chdir(before)
        self.assertLess(size, 1 << 20)
        self.assertEqual(sorted(path.name for path in folder.iterdir()), ["programs.tar.xz", "run"])
        done = subprocess.run([folder / "run", "first", "--out", self.path / "out"], capture_output=True, text=True, cwd="/")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("no GPU", done.stderr)
        unpacked = folder / "unpacked"
        self.assertIn("release 13.0", json.loads((unpacked / "session.json").read_text())["nvcc"])
        for name in ("programs/tests/cuda/gpu/test_gpu", "bench/cuda/predictions.tsv", "bench/cuda/configs/llama_1b.json", "bench/cuda/pytorch_attention.py"):
            self.assertTrue((unpacked / name).exists(), name)

    def test_the_sizes_of_parts_fill_the_time(self):
        for name, (limit, parts) in short_session.COMMANDS.items():
            self.assertEqual(sum(part.limit for part in parts), limit, name)


if __name__ == "__main__":
    unittest.main()
