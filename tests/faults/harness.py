"""Starts programs that may hang, crash or leave something behind, and says how they ended. A process that uses this is the parent of
whatever its programs orphan (prepare_process), so that nothing is missed and nothing outlives a trial."""
import ctypes
import dataclasses
import os
import pathlib
import re
import resource
import select
import signal
import subprocess
import time

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_REMOUNT, MS_RDONLY, MS_BIND, MS_REC, MS_PRIVATE = 32, 1, 4096, 16384, 1 << 18
KEPT_TEXT = 1 << 16  # of each stream, at its beginning and at its end


def call(name, *arguments):
    if LIBC[name](*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def mount(source, target, kind, flags=0, options=None):
    encode = lambda text: None if text is None else os.fsencode(text)
    call("mount", encode(source), encode(target), encode(kind), ctypes.c_ulong(flags), encode(options))


def unmount(target):
    call("umount2", os.fsencode(target), 2)  # lazily: a process may still be dying in it


def private_mounts():
    """Whether this process, and those that it starts, may mount from now on without anybody else seeing it."""
    try:
        try:
            call("unshare", CLONE_NEWNS)
        except OSError:
            user, group = os.getuid(), os.getgid()
            call("unshare", CLONE_NEWUSER | CLONE_NEWNS)
            for file, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
                pathlib.Path("/proc/self", file).write_text(text)
        try:
            mount(None, "/", None, MS_REC | MS_PRIVATE)
        except OSError:  # in a chroot / is no mount point: fine where nothing is shared anyway
            return " shared:" not in pathlib.Path("/proc/self/mountinfo").read_text()
        return True
    except OSError:
        return False


def prepare_process():
    """Orphans of what this process starts become its children."""
    call("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(root):
    """Of a process, the processes that it started, and those that these started."""
    children = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            with open(f"/proc/{entry.name}/stat") as file:
                text = file.read()
        except OSError:
            continue
        state, parent = text[text.rindex(")") + 2:].split(maxsplit=2)[:2]
        if state != "Z":
            children.setdefault(int(parent), []).append(int(entry.name))
    found = children.get(root, [])
    for process in found:
        found.extend(children.get(process, []))
    return found


def command_of(process):
    try:
        return pathlib.Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
    except OSError:
        return ""


def rank_of(process):
    try:
        found = re.search(rb"(?:^|\0)PMI_RANK=(\d+)", pathlib.Path(f"/proc/{process}/environ").read_bytes())
        return int(found[1]) if found else None
    except OSError:
        return None


def send(process, number):
    try:
        os.kill(process, number)
    except ProcessLookupError:
        pass


def reap(seconds):
    """Waits for all children; the commands of those that are still there after so long, which are then killed."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            return []
        if time.monotonic() >= deadline:
            break
        time.sleep(0.003)
    left = [command_of(process) for process in descendants(os.getpid())]
    kill_all()
    return left


def kill_all():
    while True:
        for process in descendants(os.getpid()):
            send(process, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            return
        time.sleep(0.003)


class Stream:
    """What a program writes: the beginning and the end of it."""

    def __init__(self, file):
        self.file, self.head, self.tail, self.size = file, b"", b"", 0
        os.set_blocking(file.fileno(), False)

    def take(self):
        """False at the end."""
        while True:
            try:
                piece = os.read(self.file.fileno(), 1 << 16)
            except BlockingIOError:
                return True
            if not piece:
                return False
            self.size += len(piece)
            room = KEPT_TEXT - len(self.head)
            self.head += piece[:room]
            self.tail = (self.tail + piece[max(room, 0):])[-KEPT_TEXT:]

    def text(self):
        cut = b"" if self.size <= 2 * KEPT_TEXT else b"\n[...]\n"
        return (self.head + cut + self.tail).decode(errors="backslashreplace")


@dataclasses.dataclass
class Ended:
    """How a program ended. `hung`: it did not, and was killed. `stopped`: it was told to stop (SIGINT), as it may take long."""
    status: int
    output: str
    errors: str
    seconds: float
    hung: bool = False
    stopped: bool = False
    states: str = ""  # of its processes when it hung
    left_behind: tuple = ()
    seconds_after: float = 0  # of what was done to it


# What MPICH's launcher and library say when a job ends early.
MPICH_LINES = re.compile("|".join((
    r"=+", r"=   (BAD TERMINATION|PID |EXIT CODE|CLEANING UP|YOU CAN IGNORE|KILLED BY).*",
    r"YOUR APPLICATION TERMINATED WITH THE EXIT STRING.*", r"This typically refers to a problem with your application.*",
    r"Please see the FAQ page for debugging suggestions.*", r"Abort\(\d+\) on node \d+.*", r"application called MPI_Abort.*",
    r"\[(proxy|mpiexec|[^]@]*@)[^]]*\].*", r"Ctrl-C caught.*", r"Press Ctrl-C again.*", r"\s*")))
SIGNAL_OF_MPICH = re.compile(r"EXIT STRING: .*\(signal (\d+)\)")
SANITIZER = re.compile(r"ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|: runtime error: |Sanitizer: CHECK failed")


def own_lines(text):
    """Without what MPICH says."""
    return [line for line in text.splitlines() if not MPICH_LINES.fullmatch(line)]


def states_of(processes):
    lines = []
    for process in processes:
        try:
            text = pathlib.Path(f"/proc/{process}/stat").read_text()
            fields = text[text.rindex(")") + 2:].split()
            waits = pathlib.Path(f"/proc/{process}/wchan").read_text()
        except OSError:
            continue
        seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        lines.append(f"{command_of(process)}: state {fields[0]}, {seconds:.1f} s of CPU, waits in {waits}")
    return "\n".join(lines)


def run(command, folder, environment, limit, *, limits=(), user=None, meddle=None, stdout=None, stdin=None, may_be_long=False,
        cgroup=None, limit_after=None, closes_output=False):
    """Runs a command in a session of its own. limits: pairs for setrlimit. meddle(process): called again and again while the program
    runs, until it returns true; from then on the program has limit_after seconds. stdout: a path or descriptor in place of a pipe."""
    if isinstance(stdout, (str, pathlib.Path)):
        stdout = open(stdout, "wb")

    def before():
        call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):  # nohup and Python ignore some, and children inherit that
            signal.signal(number, signal.SIG_DFL)
        if cgroup is not None:
            pathlib.Path(cgroup, "cgroup.procs").write_text("0")
        for what, most in limits:
            resource.setrlimit(what, (most, most))
        if user is not None:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
        if closes_output:
            os.close(1)

    begin = time.monotonic()
    process = subprocess.Popen(command, cwd=folder, env=environment, stdin=stdin if stdin is not None else subprocess.DEVNULL,
                               stdout=subprocess.PIPE if stdout is None else stdout, stderr=subprocess.PIPE, start_new_session=True,
                               preexec_fn=before)
    if stdout is not None and not isinstance(stdout, int):
        stdout.close()
    streams = [Stream(file) for file in (process.stdout, process.stderr) if file is not None]
    ended = Ended(0, "", "", 0)
    done_at = None  # when meddle was done
    deadline = begin + limit
    poll = select.poll()
    end = os.pidfd_open(process.pid)
    open_streams = {stream.file.fileno(): stream for stream in streams}
    for descriptor in (end, *open_streams):
        poll.register(descriptor, select.POLLIN)
    while True:
        now = time.monotonic()
        if meddle is not None and done_at is None and meddle(process.pid):
            done_at = now = time.monotonic()
            if limit_after is not None:
                deadline = now + limit_after
        if now >= deadline:
            if not may_be_long or ended.stopped:
                ended.hung = True
                ended.states = states_of([process.pid, *descendants(process.pid)])
                break
            ended.stopped = True
            deadline = now + 10
            os.killpg(process.pid, signal.SIGINT)
        wait = 0.001 if meddle is not None and done_at is None else deadline - now
        ready = {descriptor for descriptor, _ in poll.poll(max(wait, 0) * 1000)}
        for descriptor in ready & open_streams.keys():
            if not open_streams[descriptor].take():
                poll.unregister(descriptor)
                del open_streams[descriptor]
        if end in ready:
            break
    os.close(end)
    now = time.monotonic()
    ended.seconds = now - begin
    ended.seconds_after = now - done_at if done_at is not None else 0
    if ended.hung:
        kill_all()
        process.poll()
    else:
        ended.status = process.wait()
        ended.left_behind = tuple(reap(2))
    for stream in open_streams.values():
        stream.take()
    texts = [stream.text() for stream in streams]
    for stream in streams:
        stream.file.close()
    ended.output, ended.errors = texts if len(texts) == 2 else ("", texts[0])
    return ended
