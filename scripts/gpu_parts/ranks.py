"""The parts with several ranks on one GPU: ranks, kill."""
import os
import pathlib
import signal
import time

from gpu_parts import process
from gpu_parts.report import Failure
from gpu_parts.session import last_lines
from gpu_parts.training import SHARED_GPU, first_difference, prepare, read_metrics, small_config, train, with_changes

STAGE, PIPELINE, TENSOR = "zero_optimization__stage", "parallel__pipeline", "parallel__tensor"


def layouts():
    """Yields (model, reproducible, ranks, changes) of layouts that are promised to give the bits of one rank."""
    yield "gpt", "layout", 2, {STAGE: 1}
    yield "llama", "layout", 2, {STAGE: 3}
    yield "gpt", "layout", 2, {TENSOR: 2}
    yield "llama", "run", 2, {PIPELINE: 2}
    yield "gpt", "layout", 4, {STAGE: 2}
    yield "llama", "layout", 4, {PIPELINE: 2, STAGE: 1}
    yield "gpt", "layout", 4, {TENSOR: 2, STAGE: 3}
    yield "llama", "layout", 4, {PIPELINE: 2, TENSOR: 2}


def describe(model, reproducible, ranks, changes):
    return f"{model}, {ranks} ranks, {reproducible} mode: " + ", ".join(f"{key.split('__')[1]} {value}" for key, value in changes.items())


def ranks(session):
    """Compares the losses of layouts with those of one rank. All use the same microbatches, as layout mode requires."""
    references, rows = {}, []
    for number, (model, reproducible, count, changes) in enumerate(layouts()):
        config = small_config(session, model, training__steps=2 if session.shim else 6, reproducible=reproducible)
        if (model, reproducible) not in references:
            references[model, reproducible] = train(session, config, f"{model}-{reproducible}-1")
        row = {"layout": describe(model, reproducible, count, changes)}
        try:
            run = train(session, with_changes(config, changes), f"layout-{number}", ranks=count, limit=60)
            step = first_difference(run, references[model, reproducible])
            row["result"] = "equal bits" if step is None else f"differs from step {step}"
        except Failure as failure:
            row["result"] = str(failure)
        except process.OutOfTime as late:
            row["result"] = f"ended at its limit: {late}"
            if session.left() < 1:
                rows.append(row)
                break
        rows.append(row)
    session.details["layouts"] = rows
    wrong = [f"{row['layout']}: {row['result']}" for row in rows if row["result"] != "equal bits"]
    if wrong:
        raise Failure(f"{len(wrong)} of {len(rows)}: " + "; ".join(wrong))
    return f"{len(rows)} layouts give the bits of one rank" + (" (ranks are threads)" if session.shim else "")


KILL_DEADLINE_SECONDS = 10  # from the kill to the end of the survivor and the launcher


def kill(session):
    """Kills each of two ranks once. The fake device's NCCL supports only threads, so there the ranks compute on the CPU."""
    rows = [kill_one(session, victim) for victim in (0, 1)]
    session.details["kills"] = rows
    wrong = [f"rank {row['killed']}: {row['wrong']}" for row in rows if row["wrong"]]
    if wrong:
        raise Failure("; ".join(wrong))
    return f"the survivor names the lost rank and ends within {max(row['seconds'] for row in rows):.2f} s" + \
        (" (ranks on the CPU)" if session.shim else "")


def kill_one(session, victim):
    config = small_config(session, "gpt", training__steps=100_000, zero_optimization__stage=2)
    if session.shim:
        config["device"] = "cpu"
    command, environment, metrics = prepare_processes(session, config)
    before = shared_memory()
    name = f"rank-{victim}"
    with session.open_log(name) as log:
        job = process.start(command, session.environment(**environment), log)
        try:
            pid = wait_for_rank(session, job, metrics, victim)
            begin = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            code = process.wait(job, min(KILL_DEADLINE_SECONDS, session.left()), f"end of the job after the kill of rank {victim}")
            seconds = time.monotonic() - begin
        finally:
            if job.poll() is None:
                process.end_group(job)
    output = session.log_path(name).read_text(errors="replace")
    wanted = {f"lost rank {victim} (": "the survivor does not name it", "ended with exit code 10": "the survivor's exit code is not 10",
              "was killed by signal 9": "the launcher does not say that a rank was killed"}
    wrong = [problem for text, problem in wanted.items() if text not in output]
    if code != 128 + signal.SIGKILL:
        wrong.append(f"the launcher's exit code is {code}, not {128 + signal.SIGKILL}")
    left = shared_memory() - before
    if left:
        wrong.append(f"these files were left in /dev/shm: {', '.join(sorted(left))}")
    return {"killed": victim, "seconds": seconds, "wrong": "; ".join(wrong)}


def prepare_processes(session, config):
    command, environment, metrics = prepare(session, config)
    environment.update(SHARED_GPU, OMP_NUM_THREADS=1)
    return [session.trivet, "launch", "--num_gpus", 2, *command], environment, metrics


def shared_memory():
    return {path.name for path in pathlib.Path("/dev/shm").glob("trivet-*")}


def wait_for_rank(session, job, metrics, rank):
    """Waits until the job has done two steps; returns the process id of a rank."""
    while len(read_metrics(metrics)) < 2:
        if job.poll() is not None:
            raise Failure(f"the job ended by itself with exit code {job.returncode}: {last_lines(session.log_path(f'rank-{rank}').read_text())}")
        if session.left() < 1:
            raise process.OutOfTime("two steps of two ranks")
        time.sleep(0.02)
    for pid in process.descendants_of(job.pid):
        variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if f"RANK={rank}".encode() in variables:
            return pid
    raise Failure(f"none of the launcher's processes is rank {rank}")
