"""Runs a command and hands over each line as it comes, so that a crash, a hang or a limit loses only what was not printed yet."""
import dataclasses
import threading
import time

from gpu_parts import process


@dataclasses.dataclass
class Ended:
    how: str      # "ended"; "limit": its time was over; "silent": it printed nothing for too long, so it probably hangs
    code: object  # the exit code, negative after a signal; None if it was ended from here
    output: str

    def describe(self):
        if self.how == "limit":
            return "ended at its time limit"
        if self.how == "silent":
            return "hangs: it printed nothing for too long and was ended"
        return f"was killed by signal {-self.code}" if self.code < 0 else f"exit code {self.code}"


def run_lines(command, environment, seconds, on_line=lambda line: None, silence=None, folder=None):
    """Runs a command in its own process group, for at most `seconds` and at most `silence` seconds without output. Returns Ended."""
    job = process.start_piped(command, environment, folder)
    lines, last = [], [time.monotonic()]

    def read():
        for raw in job.stdout:
            line = raw.decode(errors="replace").rstrip("\n")
            last[0] = time.monotonic()
            lines.append(line)
            on_line(line)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    end = time.monotonic() + max(seconds, 0.01)
    how = "ended"
    try:
        while job.poll() is None:
            now = time.monotonic()
            if now > end or (silence and now - last[0] > silence):
                how = "limit" if now > end else "silent"
                break
            time.sleep(0.02)
    finally:
        if job.poll() is None:
            process.end_group(job)
    reader.join(0.5)  # a process that was left behind may hold the pipe open
    if reader.is_alive():
        process.end_group(job)
        reader.join(1)
    if not reader.is_alive():
        job.stdout.close()
    return Ended(how, job.returncode if how == "ended" else None, "\n".join(lines) + ("\n" if lines else ""))
