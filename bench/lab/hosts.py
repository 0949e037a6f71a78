#!/usr/bin/env python3
"""Hosts on one machine, for measurements over a network that is really crossed: namespaces, each with a network, a mount
table with a /dev/shm of its own, and an IPC namespace, joined by veth pairs and a bridge at a chosen rate.

    hosts.py [--hosts N] [--ranks-per-host N] [--rate 1gbit] [--delay 0ms] -- COMMAND...

runs COMMAND by mpiexec across the hosts, MPI over TCP. First it proves that traffic crosses the links. It needs root, and
iproute2; where it may not do this it says so in a line and ends with status 77.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
import library_kernels  # takes what chooses kernels out of os.environ

SKIPPED = 77
DEVICE = "eth0"
LARGE_SEGMENTS = ("gso_max_size", "gso_ipv4_max_size", "gro_max_size", "gro_ipv4_max_size")
HOST = ["--net", "--mount", "--ipc", "--uts"]


class Skip(Exception):
    """The lab cannot be set up here."""


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise Skip(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def enter(pid, kinds):
    """The words before a command that runs it in a process's namespaces."""
    return ["nsenter", "--target", str(pid), *kinds, *(["--root", "--wd"] if "--mount" in kinds else [])]


class Namespace:
    """Namespaces that live as long as a process that sleeps in them."""

    def __init__(self, kinds, first="true"):
        command = ["unshare", *kinds]
        if "--mount" in kinds and subprocess.run([*command, "true"], stderr=subprocess.DEVNULL).returncode != 0:
            command += ["--propagation", "unchanged"]  # in a chroot, which is in a mount table of its own already
        self.kinds = kinds
        self.process = subprocess.Popen([*command, "sh", "-c", f"{first} && echo ready && exec sleep infinity"],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            raise Skip(f"unshare {' '.join(kinds)}: {self.process.stderr.read().strip()}")

    @property
    def pid(self):
        return self.process.pid

    def enter(self):
        return enter(self.pid, self.kinds)

    def __call__(self, *command):
        return run(*self.enter(), *command)

    def close(self):
        self.process.kill()
        self.process.wait()


class Hosts:
    """The hosts, named by their addresses."""

    def __init__(self, count, rate, delay):
        if os.geteuid() != 0:
            raise Skip("only root makes namespaces")
        for tool in ("unshare", "nsenter", "ip", "tc"):
            if shutil.which(tool) is None:
                raise Skip(f"there is no {tool}")
        self.rate, self.made = rate, []
        try:
            self.switch = self.make(["--net"])
            self.switch("ip", "link", "add", "bridge", "type", "bridge")
            self.switch("ip", "link", "set", "bridge", "up")
            self.hosts = [self.host(i, delay) for i in range(count)]
        except BaseException:
            self.close()
            raise
        self.addresses = [f"10.77.0.{i + 1}" for i in range(count)]

    def make(self, *arguments):
        self.made.append(Namespace(*arguments))
        return self.made[-1]

    def host(self, i, delay):
        host = self.make(HOST,
                         f"mount -t tmpfs -o size=64m tmpfs /dev/shm && hostname host{i}")
        run("ip", "link", "add", DEVICE, "netns", host.pid, "type", "veth", "peer", "name", f"port{i}", "netns", self.switch.pid)
        host("ip", "address", "add", f"10.77.0.{i + 1}/24", "dev", DEVICE)
        for name in ("lo", DEVICE):
            host("ip", "link", "set", name, "up")
        self.switch("ip", "link", "set", f"port{i}", "master", "bridge", "up")
        # A network card cuts segments itself; here the kernel does it, in time that it takes from the ranks: fewer, larger ones.
        for where, device in ((host, DEVICE), (self.switch, f"port{i}"), (self.switch, "bridge")):
            for limit in LARGE_SEGMENTS:
                where("sh", "-c", f"ip link set dev {device} {limit} 128000 2>/dev/null || true")  # not every kernel can
        for where, device in ((host, DEVICE), (self.switch, f"port{i}")):
            where("tc", "qdisc", "add", "dev", device, "root", "handle", "1:", "tbf", "rate", self.rate, "burst", "200kb",
                  "latency", "100ms")
            if delay != "0ms":
                where("tc", "qdisc", "add", "dev", device, "parent", "1:", "netem", "delay", delay)
        return host

    def counters(self):
        """Bytes that each host's device has sent and received."""
        stats = [json.loads(host("ip", "-s", "-j", "link", "show", "dev", DEVICE))[0]["stats64"] for host in self.hosts]
        return [(s["tx"]["bytes"], s["rx"]["bytes"]) for s in stats]

    def link_rate(self, ranks_per_host):
        """Bytes in a second from the first host to the last, which it prints beside what the lab is."""
        size = 64 << 20
        rate = size / self.prove(size)[0]
        print(f"lab: {len(self.hosts)} hosts, {ranks_per_host} ranks on each, {self.rate}: {rate / 1e6:.0f} MB/s", flush=True)
        return rate

    def prove(self, size=8 << 20):
        """Sends `size` bytes from the first host to the last. @return seconds and the bytes that the last one's device counted"""
        before = self.counters()
        code = ("import socket; s = socket.create_server(('', 7777)); print('ready', flush=True); c, _ = s.accept(); n = 0\n"
                "while d := c.recv(1 << 20): n += len(d)\n"
                "print(n, flush=True)")
        with subprocess.Popen([*self.hosts[-1].enter(), sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as receiver:
            receiver.stdout.readline()
            start = time.monotonic()
            self.hosts[0](sys.executable, "-c", f"import socket; s = socket.create_connection(('{self.addresses[-1]}', 7777)); "
                                                f"s.sendall(bytes({size})); s.shutdown(socket.SHUT_WR); s.recv(1)")
            arrived = int(receiver.stdout.readline())
        seconds = time.monotonic() - start
        counted = self.counters()[-1][1] - before[-1][1]
        if arrived != size or counted < size:
            raise Skip(f"{size} bytes sent, {arrived} arrived, and the device counted {counted}")
        return seconds, counted

    def mpiexec(self, ranks_per_host, command, **options):
        """Runs a command on every host. MPI finds its peers over TCP on the device, and nothing else."""
        here = os.path.abspath(__file__)
        environment = {**os.environ, "LAB_HOSTS": " ".join(f"{a}={h.pid}" for a, h in zip(self.addresses, self.hosts)),
                       "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": DEVICE, "FI_PROVIDER": "tcp", "FI_TCP_IFACE": DEVICE}
        environment.pop("HYDRA_LAUNCHER", None)
        hosts = ",".join(f"{address}:{ranks_per_host}" for address in self.addresses)
        return subprocess.run([*self.hosts[0].enter(), "mpiexec", "-launcher", "ssh", "-launcher-exec", here, "-localhost",
                               self.addresses[0], "-hosts", hosts, "-n", str(ranks_per_host * len(self.hosts)), *command],
                              env=environment, **options)

    def close(self):
        for namespace in self.made:
            namespace.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def lines_of(o, *commands):
    """What commands print, run on all hosts of a lab that is made as the arguments say: a list of lines, JSON, for each.
    Where there can be no lab this ends with a line that says so."""
    printed = []
    try:
        with Hosts(o.hosts, o.rate, o.delay) as lab:
            seconds, counted = lab.prove()
            print(f"lab: {o.hosts} hosts, {o.ranks_per_host} ranks on each, {o.rate}; 8 MiB from the first to the last in "
                  f"{seconds * 1e3:.0f} ms, {counted} bytes on its device", flush=True)
            for command in commands:
                done = lab.mpiexec(o.ranks_per_host, list(map(str, command)), stdout=subprocess.PIPE, text=True)
                if done.returncode != 0:
                    sys.exit(f"lab: {command[0]} ended with {done.returncode}")
                printed.append([json.loads(line) for line in done.stdout.splitlines()])
    except Skip as reason:
        print(f"lab: skipped: {reason}")
        sys.exit()
    return printed


def as_launcher(words):
    """mpiexec's launcher: [-x] ADDRESS COMMAND..., run on the host of that address."""
    words = [word for word in words if word != "-x"]
    pid = dict(entry.split("=") for entry in os.environ["LAB_HOSTS"].split())[words[0]]
    command = [*enter(pid, HOST), "sh", "-c", " ".join(words[1:])]
    os.execvp(command[0], command)


def add_arguments(parser, ranks_per_host=2):
    parser.add_argument("--hosts", type=int, default=2, choices=(2, 3, 4))
    parser.add_argument("--ranks-per-host", type=int, default=ranks_per_host)
    parser.add_argument("--rate", default="1gbit", help="of a link, as tc reads it")
    parser.add_argument("--delay", default="0ms", help="of a link, where the kernel has netem")


def main():
    if "LAB_HOSTS" in os.environ:
        as_launcher(sys.argv[1:])
    parser = argparse.ArgumentParser(usage="hosts.py [OPTIONS] -- COMMAND...")
    add_arguments(parser)
    parser.add_argument("command", nargs="+")
    o = parser.parse_args()
    try:
        with Hosts(o.hosts, o.rate, o.delay) as hosts:
            seconds, counted = hosts.prove()
            print(f"lab: {o.hosts} hosts; 8 MiB from the first to the last in {seconds * 1e3:.0f} ms, {counted} bytes on its device",
                  file=sys.stderr)
            before = hosts.counters()
            status = hosts.mpiexec(o.ranks_per_host, o.command).returncode
            for i, ((sent, received), (sent_before, received_before)) in enumerate(zip(hosts.counters(), before)):
                print(f"lab: host {i} sent {sent - sent_before} bytes and received {received - received_before}", file=sys.stderr)
            sys.exit(status)
    except Skip as reason:
        print(f"lab: skipped: {reason}", file=sys.stderr)
        sys.exit(SKIPPED)


if __name__ == "__main__":
    main()
