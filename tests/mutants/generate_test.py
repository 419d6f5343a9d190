#!/usr/bin/env python3
"""Tests which mutants scripts/mutate generates."""
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from mutate_parts import choose  # noqa: E402
from mutate_parts.generate import mutants_of  # noqa: E402

# A line of a function, and what becomes of it. A line of which nothing is expected is left alone.
MUTANTS = {
    "x = a < b;": ["x = a <= b;", "x = a >= b;", ";"],
    "y = a == b && !c;": ["y = a != b && !c;", "y = a == b || !c;", "y = a == b && c;", ";"],
    "const int64_t size = rows * cols + 1;": ["const int64_t size = rows / cols + 1;", "const int64_t size = rows * cols - 1;",
                                              "const int64_t size = rows * cols;"],
    "return std::min(3, other(a));": ["return std::max(3, other(a));", "return std::min(4, other(a));", "return {};"],
    "return shape[1];": ["return shape[0];", "return {};"],
    "bool ready = true;": ["bool ready = false;"],
    "if (count > limit) return;": ["if (count >= limit) return;", "if (count <= limit) return;", "if (false) return;"],
    "if (ready_) stream.wait(event);": ["if (!(ready_)) stream.wait(event);", "if (ready_) ;"],
    "for (const Event& event : events) event.wait();": ["for (const Event& event : events) ;"],
    "const int ranks = mesh.size(Axis::Tensor);": ["const int ranks = mesh.size(Axis::Data);"],
    "int from = wide ? 20 : 30;": ["int from = !wide ? 20 : 30;"],
    "copy(from, to_row, at_row);": ["copy(from, at_row, to_row);", ";"],
    "++counts[i + 1];": ["++counts[i - 1];", "++counts[i];", ";"],
    "return part.rows;": ["return part.cols;", "return {};"],
    # A person is told this.
    'if (bad) throw ConfigError(fmt::format("{} < {}", a + 1, b));': ['if (false) throw ConfigError(fmt::format("{} < {}", a + 1, b));'],
    'text += fmt::format("{} of 2\\n", n + 1);': [";"],
    "static_assert(kWords == 2 && kSmall < 3);": [],
    "// a < b && true": [],
    "#if TRIVET_DEBUG == 1": [],
    # The compiler decides this.
    "using Pair = std::pair<int, 2>;": [],
    "std::array<std::map<int, bool>, 4> all{};": [],
    "if constexpr (kSize == 2) {}": [],
    "const auto* const first = static_cast<const float*>(data);": [],
    # It would make no difference that a test could see.
    "all.reserve(n);": [],
    "wait_for(std::chrono::milliseconds(5));": [";"],
    "const int64_t bytes = 4096;": [],
    "int place = -1;": [],
}


def texts_of(mutants, text):
    return [text[:offset] + new + text[offset + len(old) :] for offset, old, new, _ in mutants]


def files_of(folder):
    return [str(path.relative_to(ROOT)) for path in sorted((ROOT / folder).rglob("*.cpp")) if not choose.CUDA.search(str(path))]


class Generator(unittest.TestCase):
    def test_changes_one_place_of_a_line(self):
        for line, expected in MUTANTS.items():
            with self.subTest(line):
                text = "void f() {\n%s\n}\n"
                self.assertCountEqual(texts_of(mutants_of(text % line), text % line), [text % one for one in expected])

    def test_mutates_only_bodies_of_functions(self):
        text = """namespace trivet {
            constexpr int kSizes[] = {1, 2, 3};
            enum class Kind { One = 1 };
            template <int N = 2>
            struct Shape : Base<1> {
              int dims = 3;
              int last() const { return MARK; }
              bool operator==(const Shape&) const = default;
            };
            Shape::Shape(int n = 4) : Base{n}, dims(n - 1) {
              MARK();
            }
            }"""
        self.assertEqual([old for _, old, _, _ in mutants_of(text)], ["MARK", "MARK();"])

    def test_leaves_all_else_of_a_file_as_it_is(self):
        for file in ("core/arena.cpp", "pipeline/simulate.cpp", "engine/executor.cpp", "zero/parameter_group.h", "cli/main.cpp"):
            text = (ROOT / file).read_text()
            mutants = mutants_of(text)
            self.assertEqual(len({(offset, old, new) for offset, old, new, _ in mutants}), len(mutants))
            for offset, old, new, rule in mutants:
                self.assertEqual(text[offset : offset + len(old)], old)
                self.assertNotEqual(old, new)
                self.assertNotIn("\n" if rule != "conditions" else ";", old, file)


class Choice(unittest.TestCase):
    def test_knows_the_tests_of_every_file(self):
        files = [file for folder in choose.FOLDERS for file in files_of(folder)]
        self.assertGreater(len(files), 500)
        programs = {tests.partition(":")[0] for file in files for tests in choose.tests_of(ROOT, file)}
        self.assertEqual([name for name in programs if not any((ROOT / "tests" / name[5:]).rglob("*_test.cpp"))], [])

    def test_puts_the_tests_with_the_name_of_the_file_first(self):
        self.assertEqual(choose.tests_of(ROOT, "comm/shm/heap.cpp"), ("test_comm:*Heap*", "test_comm", "test_launch"))

    def test_draws_the_same_sample_for_a_seed(self):
        first, again, other = (choose.sample(ROOT, files_of("pipeline"), 20, seed, ()) for seed in ("a", "a", "b"))
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)
        self.assertEqual(len({mutant.key for mutant in first}), 20)

    def test_plants_and_shows_what_it_has_chosen(self):
        text = "int f() {\n  return a + b;\n}\n"
        mutant = choose.Mutant("f.cpp", text.index("+"), 2, "+", "-", "operators", ())
        self.assertEqual(mutant.plant(text), "int f() {\n  return a - b;\n}\n")
        self.assertEqual(mutant.diff(text), "-  return a + b;\n+  return a - b;")


if __name__ == "__main__":
    unittest.main()
