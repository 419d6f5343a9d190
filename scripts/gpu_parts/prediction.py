"""The part predict: compares the step times that `trivet bench` predicts with measured ones."""
import re

from gpu_parts.report import Failure
from gpu_parts.session import last_lines
from gpu_parts.speed import MODELS, model_config
from gpu_parts.training import prepare

SECONDS = 40  # of `trivet bench kernels`


def predict(session):
    profile = session.work / "profile.json"
    bench(session, ["kernels", "--device", "cuda", "--ranks", "1", "--seconds", str(SECONDS)], profile, "kernels")
    rows = []
    for name in MODELS:
        command, environment, _ = prepare(session, model_config(session, name))
        output = bench(session, ["step", command[2], "--ranks", "1", "--steps", "10"], profile, name, **environment)
        rows.append({"model": name, "measured ms": milliseconds("measured", output), "predicted ms": milliseconds("predicted", output)})
    session.details["predictions"] = rows
    return "; ".join(f"{row['model']} predicted {row['predicted ms']:.1f}, measured {row['measured ms']:.1f} ms" for row in rows)


def bench(session, arguments, profile, name, **environment):
    code, output = session.run([session.trivet, "bench", *arguments, "--profile", profile], name, **environment)
    if code != 0:
        raise Failure(f"trivet bench {arguments[0]}: exit code {code}: {last_lines(output)}")
    return output


def milliseconds(what, output):
    found = re.search(rf"^{what} ([0-9.]+) ms", output, re.MULTILINE)
    if not found:
        raise Failure(f"trivet bench step printed no {what} time: {last_lines(output)}")
    return float(found[1])
