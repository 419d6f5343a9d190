"""The part pytorch."""
import json
import os

from gpu_parts.report import Failure, Skipped
from gpu_parts.session import last_lines


def pytorch(session):
    # PyTorch brings its own CUDA libraries: those of the toolkit must not come before them.
    inherited = {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
    see_gpu = "import torch; raise SystemExit(not torch.cuda.is_available())"
    code, _ = session.run([session.args.python, "-c", see_gpu], "torch", 60, **inherited)
    if code != 0:
        raise Skipped(f"{session.args.python} has no PyTorch that sees the GPU; name another Python with --python")
    results = session.logs / f"{session.part}-results.json"
    command = [session.args.python, "bench/cuda/compare_pytorch.py", "--python", session.args.python, "--trivet", session.trivet,
               "--library-path", session.environment().get("LD_LIBRARY_PATH", ""), "--rounds", 2, "--json", results,
               "--seconds", int(session.left() - 10)]
    code, output = session.run(command, "compare", **inherited)
    rows = json.loads(results.read_text()) if results.exists() else []
    session.details["models"] = rows
    if code != 0:
        raise Failure(f"compare_pytorch.py: exit code {code}: {last_lines(output)}")
    done = [row for row in rows if row.get("ratio")]
    if not done:
        raise Failure("there was not enough time to measure any model on both sides")
    return "; ".join(f"{row['model']}: Trivet {row['ratio']:.2f} times PyTorch" for row in done)
