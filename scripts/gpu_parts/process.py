"""Commands with a time limit that leave no process behind."""
import ctypes
import os
import pathlib
import signal
import subprocess
import time

PR_SET_CHILD_SUBREAPER = 36
GRACE_SECONDS = 5  # between SIGTERM and SIGKILL


class OutOfTime(Exception):
    """A command was ended at the limit of its part."""


class Interrupted(BaseException):
    """This program got SIGINT, SIGTERM or SIGHUP."""


def adopt_orphans():
    """Makes this process the parent of orphans of its children, so that end_children finds them; turns signals into Interrupted."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def interrupt(number, _):
        raise Interrupted(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)


def children_of(pid):
    """Returns the direct children of a process that have not ended, as {pid: command line}."""
    found = {}
    try:
        tasks = list(pathlib.Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return found
    for task in tasks:
        try:
            pids = (task / "children").read_text().split()
        except OSError:
            continue
        for child in pids:
            try:
                state = pathlib.Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0]
                command = pathlib.Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue
            if state != "Z":
                found[int(child)] = command
    return found


def descendants_of(pid):
    found = {}
    for child, command in children_of(pid).items():
        found[child] = command
        found.update(descendants_of(child))
    return found


def reap():
    """Collects the exit codes of children that nobody waits for."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def end_children(patience=2.0):
    """Kills the remaining descendants of this process; returns the command lines of those that did not end by themselves."""
    end = time.monotonic() + patience
    while (left := descendants_of(os.getpid())) and time.monotonic() < end:
        reap()
        time.sleep(0.05)
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    reap()
    return sorted(command[:100] or "?" for command in left.values())


def signal_group(process, number):
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass


def end_group(process):
    """Ends a process that was started with start_new_session, and its group."""
    signal_group(process, signal.SIGTERM)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    signal_group(process, signal.SIGKILL)
    process.wait()


def start(command, environment, log, folder=None):
    """Starts a command in its own process group, with all its output in the file `log`."""
    return subprocess.Popen([str(word) for word in command], env=environment, stdin=subprocess.DEVNULL, stdout=log,
                            stderr=subprocess.STDOUT, start_new_session=True, cwd=folder)


def start_piped(command, environment, folder=None):
    """Does the same, but all output comes out of the result's `stdout`."""
    return subprocess.Popen([str(word) for word in command], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, start_new_session=True, cwd=folder)


def wait(process, seconds, what):
    """Returns the exit code. At the limit, or when this program is interrupted, ends the command and raises."""
    try:
        return process.wait(max(seconds, 0.01))
    except subprocess.TimeoutExpired:
        end_group(process)
        raise OutOfTime(what) from None
    except BaseException:
        end_group(process)
        raise
