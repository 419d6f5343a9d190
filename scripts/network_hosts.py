"""Hosts that are network namespaces of this machine, for scripts/many_hosts and scripts/host_failures.

Each host has its own name, network address, shared memory and IPC namespace, and a link of its own to one switch (a bridge), so
that links can be slow or down. Processes, files and clocks are this machine's. Needs root.
"""
import json
import os
import pathlib
import random
import secrets
import shutil
import signal
import subprocess
import tempfile
import time


def why_not():
    """Why there can be no such hosts here; "" if there can."""
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    name = f"trv{secrets.token_hex(3)}"
    for command in (["ip", "netns", "add", name], ["ip", "netns", "exec", name, "true"], ["ip", "netns", "del", name],
                    ["ip", "link", "add", name, "type", "bridge"], ["ip", "link", "del", name],
                    ["ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}p"],
                    ["tc", "qdisc", "add", "dev", name, "root", "tbf", "rate", "1gbit", "burst", "256kb", "latency", "20ms"],
                    ["ip", "link", "del", name],
                    ["unshare", "--uts", "--mount", "--ipc", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"]):
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError:
            return f"the program {command[0]} is missing (Debian: iproute2, util-linux)"
        if done.returncode:
            return f"{' '.join(command)}: {done.stderr.strip()}"
    return ""


def why_no_ssh():
    """Why there can be no Sshd here; "" if there can."""
    missing = [program for program in ("sshd", "ssh", "ssh-keygen") if not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin")]
    return f"{', '.join(missing)} missing (Debian: openssh-server, openssh-client)" if missing else ""


def run(*command):
    subprocess.run(command, check=True, capture_output=True, text=True)


class Host:
    def __init__(self, hosts, number):
        self.name = f"{hosts.prefix}h{number}"
        self.link = f"{hosts.prefix}v{number}"  # its end at the switch
        self.address = f"10.79.{hosts.network}.{number + 1}"
        self.address6 = f"fd79:{hosts.network:x}::{number + 1}"
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        run("ip", "link", "set", self.link, "master", hosts.bridge, "up")
        run("ip", "-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        run("ip", "-n", self.name, "addr", "add", f"{self.address6}/64", "dev", "eth0", "nodad")
        run("ip", "-n", self.name, "link", "set", "eth0", "up")
        run("ip", "-n", self.name, "link", "set", "lo", "up")
        # Keeps the namespaces that have no name of their own.
        self.holder = subprocess.Popen(
            ["ip", "netns", "exec", self.name, "unshare", "--uts", "--mount", "--ipc", "bash", "-c",
             f"hostname {self.name} && mount -t tmpfs tmpfs /dev/shm && echo ready && exec sleep infinity"],
            stdout=subprocess.PIPE, text=True)
        if self.holder.stdout.readline().strip() != "ready":
            raise RuntimeError(f"host {self.name} did not start")

    def command(self, *command):
        return ["nsenter", "-t", str(self.holder.pid), "--uts", "--mount", "--ipc", "--net", *command]

    def own_directory(self, path):
        """Gives this host an empty directory of its own at a path that all hosts have."""
        run(*self.command("mount", "-t", "tmpfs", "tmpfs", str(path)))

    def bytes_below(self, path):
        done = subprocess.run(self.command("du", "-sb", path), capture_output=True, text=True)
        return int(done.stdout.split()[0]) if done.returncode == 0 else 0

    def bytes_sent(self):
        path = "/sys/class/net/eth0/statistics/tx_bytes"
        done = subprocess.run(["ip", "netns", "exec", self.name, "cat", path], check=True, capture_output=True, text=True)
        return int(done.stdout)

    def shape(self, rate):
        """Limits what it sends and what it receives: "1gbit"."""
        limit = ["root", "tbf", "rate", rate, "burst", "256kb", "latency", "20ms"]
        run("ip", "netns", "exec", self.name, "tc", "qdisc", "replace", "dev", "eth0", *limit)
        run("tc", "qdisc", "replace", "dev", self.link, *limit)

    def unshape(self):
        subprocess.run(["ip", "netns", "exec", self.name, "tc", "qdisc", "del", "dev", "eth0", "root"], capture_output=True)
        subprocess.run(["tc", "qdisc", "del", "dev", self.link, "root"], capture_output=True)

    def set_link(self, state):
        run("ip", "link", "set", self.link, state)

    def processes(self, mark):
        """Processes on this host whose environment has TRIVET_TEST_MARK=mark."""
        network = os.stat(f"/proc/{self.holder.pid}/ns/net").st_ino
        found = []
        for pid in left_of(mark):
            try:
                found += [pid] if os.stat(f"/proc/{pid}/ns/net").st_ino == network else []
            except OSError:
                pass  # it has just ended
        return found

    def remove(self):
        self.holder.send_signal(signal.SIGKILL)
        self.holder.wait()
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True)
        subprocess.run(["ip", "link", "del", self.link], capture_output=True)


class Hosts:
    """with Hosts(3) as hosts: hosts[0].command("hostname")"""

    def __init__(self, count, prefix="t"):
        self.prefix = f"{prefix}{secrets.token_hex(2)}"  # names of interfaces may have 15 characters
        self.network = secrets.randbelow(250) + 1
        self.bridge = f"{self.prefix}br"
        self.list = []
        self.count = count

    def __enter__(self):
        run("ip", "link", "add", self.bridge, "type", "bridge")
        try:
            run("ip", "link", "set", self.bridge, "up")
            for number in range(self.count):
                self.list.append(Host(self, number))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for host in self.list:
            host.remove()
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True)

    def __getitem__(self, index):
        return self.list[index]

    def __len__(self):
        return len(self.list)


def read_words(pid, file):
    try:
        return pathlib.Path(f"/proc/{pid}/{file}").read_bytes().split(b"\0")
    except OSError:
        return []


def words_of(pid):
    return read_words(pid, "cmdline")


def variables_of(pid):
    return read_words(pid, "environ")


def left_of(mark):
    """Processes of this job: those that have its mark in their environment."""
    return [int(entry.name) for entry in pathlib.Path("/proc").iterdir()
            if entry.name.isdigit() and f"TRIVET_TEST_MARK={mark}".encode() in variables_of(entry.name)]


def write_config(folder, reproducible, steps):
    """A small model on a text that is made; returns the config's path."""
    text = folder / "text.txt"
    if not text.exists():
        words = "the model reads a line of words and then it says what the next word may be once more".split()
        chosen = random.Random(7)
        text.write_text(" ".join(chosen.choice(words) for _ in range(6000)))
    file = folder / f"{reproducible}.json"
    file.write_text(json.dumps({
        "model": {"type": "gpt", "layers": 2, "hidden_size": 48, "heads": 4, "sequence_length": 32, "vocabulary": "bytes", "dropout": 0.1},
        "data": {"train": str(text), "validation_fraction": 0.1},
        "training": {"steps": steps, "seed": 5},
        "train_batch_size": 12, "train_micro_batch_size_per_gpu": 1, "reproducible": reproducible,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.003, "weight_decay": 0.1}},
        "zero_optimization": {"stage3_param_persistence_threshold": 100, "stage3_max_reuse_distance": 0},
    }))
    return file


class Sshd:
    """An sshd on each host, and a configuration for ssh with which every host reaches every other by its name."""

    def __init__(self, hosts):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="trivet-sshd-"))
        for key in ("id", "hostkey"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / key))
        (self.folder / "authorized_keys").write_text((self.folder / "id.pub").read_text())
        public = " ".join((self.folder / "hostkey.pub").read_text().split()[:2])
        (self.folder / "known_hosts").write_text("".join(f"{host.name},{host.address} {public}\n" for host in hosts.list))
        (self.folder / "sshd_config").write_text(
            f"HostKey {self.folder}/hostkey\nAuthorizedKeysFile {self.folder}/authorized_keys\nPasswordAuthentication no\n"
            "KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nUsePAM no\nStrictModes no\nPrintMotd no\n"
            "MaxStartups 100\nAcceptEnv TRIVET_TEST_MARK\n")
        self.config = self.folder / "ssh_config"
        self.config.write_text(
            "".join(f"Host {host.name}\n  HostName {host.address}\n" for host in hosts.list) +
            f"Host *\n  User root\n  IdentityFile {self.folder}/id\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.folder}/known_hosts\n  StrictHostKeyChecking yes\n  LogLevel ERROR\n"
            "  SendEnv TRIVET_TEST_MARK\n")
        os.makedirs("/run/sshd", exist_ok=True)
        self.daemons = [subprocess.Popen(host.command("/usr/sbin/sshd", "-D", "-f", str(self.folder / "sshd_config"), "-o",
                                                      f"PidFile={self.folder}/{host.name}.pid", "-o", f"ListenAddress={host.address}"))
                        for host in hosts.list]
        for host in hosts.list:
            for _ in range(100):
                if self.answers(host):
                    break
                time.sleep(0.05)

    def answers(self, host):
        return subprocess.run(host.command("bash", "-c", f"exec 3<>/dev/tcp/{host.address}/22"), capture_output=True).returncode == 0

    def close(self):
        for daemon in self.daemons:
            daemon.kill()
            daemon.wait()
        shutil.rmtree(self.folder)


class Slurm:
    """A Slurm whose nodes are the first two hosts; its controller runs outside of them. `environment` is for srun and sbatch."""

    SOCKET = "/run/munge/munge.socket.2"

    def __init__(self, hosts):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="trivet-slurm-"))
        self.folder.chmod(0o755)
        controller = f"10.79.{hosts.network}.254"
        run("ip", "addr", "add", f"{controller}/24", "dev", hosts.bridge)
        self.environment = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        nodes = hosts.list[:2]
        (self.folder / "slurm.conf").write_text(
            f"ClusterName=test\nSlurmctldHost=ctl({controller})\nAuthType=auth/munge\nCredType=cred/munge\nSlurmUser=root\n"
            f"SlurmdUser=root\nSlurmctldPort=6817\nSlurmdPort=6818\nSrunPortRange=60001-60100\n"
            f"StateSaveLocation={self.folder}/state\nSlurmdSpoolDir={self.folder}/spool.%n\n"
            f"SlurmctldPidFile={self.folder}/ctld.pid\nSlurmdPidFile={self.folder}/slurmd.%n.pid\n"
            f"SlurmctldLogFile={self.folder}/ctld.log\nSlurmdLogFile={self.folder}/slurmd.%n.log\n"
            "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/cons_tres\n"
            "SelectTypeParameters=CR_Core\nMpiDefault=none\nReturnToService=2\nSlurmctldTimeout=10\nSlurmdTimeout=10\n"
            "InactiveLimit=0\nKillWait=5\nMailProg=/bin/true\nAccountingStorageType=accounting_storage/none\n"
            "JobAcctGatherType=jobacct_gather/none\nSlurmdParameters=config_overrides\n" +
            "".join(f"NodeName={host.name} NodeHostname={host.name} NodeAddr={host.address} CPUs=4 RealMemory=4000 State=UNKNOWN\n"
                    for host in nodes) +
            "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4\n")
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # needed where no cgroup file system is mounted
        (self.folder / "state").mkdir()
        for host in nodes:
            (self.folder / f"spool.{host.name}").mkdir()
        # A node that cannot look up the names of the others cannot find rank 0.
        self.names = []
        for host in hosts.list:
            path = pathlib.Path("/etc/netns") / host.name
            path.mkdir(parents=True, exist_ok=True)
            (path / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{other.address} {other.name}\n" for other in nodes))
            self.names.append(path)
        self.daemons = []
        munge = self.folder / "munge"
        munge.mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        os.makedirs("/run/munge", exist_ok=True)
        for path in (munge, key, "/run/munge"):
            shutil.chown(path, "munge", "munge")
        key.chmod(0o400)
        self.start(["setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", "/usr/sbin/munged", "--foreground",
                    f"--key-file={key}", f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed",
                    f"--socket={self.SOCKET}", "--force"])
        for _ in range(100):
            if os.path.exists(self.SOCKET):
                break
            time.sleep(0.05)
        self.start(["unshare", "--uts", "bash", "-c", f"hostname ctl; exec /usr/sbin/slurmctld -f {self.folder}/slurm.conf -D"])
        for host in nodes:  # ip netns exec, so that the node has its own /etc/hosts
            self.start(["ip", "netns", "exec", host.name, "unshare", "--uts", "--ipc", "--mount", "bash", "-c",
                        f"hostname {host.name}; mount -t tmpfs tmpfs /dev/shm; "
                        f"exec /usr/sbin/slurmd -D -N {host.name} -f {self.folder}/slurm.conf"])
        for _ in range(200):
            done = subprocess.run(["sinfo", "-h", "-t", "idle", "-o", "%D"], capture_output=True, text=True,
                                  env=dict(os.environ, **self.environment))
            if done.stdout.strip() == "2":
                return
            time.sleep(0.1)
        self.close()
        raise RuntimeError("Slurm's nodes did not become idle")

    def start(self, command):
        self.daemons.append(subprocess.Popen(command, env=dict(os.environ, **self.environment), stdout=subprocess.DEVNULL,
                                             stderr=subprocess.DEVNULL))

    def close(self):
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(5)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for path in self.names:
            shutil.rmtree(path, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)


class Job:
    """One process per rank. `ranks` is the number of ranks of each host."""

    def __init__(self, hosts, ranks, command, environment=None, port=29500, address=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="trivet-job-"))
        secret = self.folder / "secret"
        secret.touch(mode=0o600)
        secret.write_text(secrets.token_hex(32))
        self.processes = []
        world = sum(ranks)
        for host, local_size in enumerate(ranks):
            for local_rank in range(local_size):
                rank = len(self.processes)
                mine = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(local_rank),
                        "LOCAL_SIZE": str(local_size), "MASTER_ADDR": address or hosts[0].address, "MASTER_PORT": str(port),
                        "TRIVET_SECRET_FILE": str(secret), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", **(environment or {})}
                with open(self.folder / f"{rank}.log", "w") as log:
                    self.processes.append(subprocess.Popen(hosts[host].command(*command(rank)), env=mine, stdout=log,
                                                           stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL))

    def wait(self, seconds=120):
        """The exit codes, by rank; None for a rank that had to be killed."""
        try:
            for process in self.processes:
                process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        codes = [process.poll() for process in self.processes]
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        return codes

    def log(self, rank):
        return (self.folder / f"{rank}.log").read_text()
