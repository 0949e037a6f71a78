#!/usr/bin/env python3
"""./dev without root: rootless.py CHECKOUT. How it comes by its privileges and what it says where it gets none, with stand-ins for the programs
that need some; what a package's chown does; and what it unpacks on a host without apt, from a mirror that is a folder."""
import hashlib
import io
import lzma
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile

checkout = pathlib.Path(sys.argv[1])


def expect(condition, what):
    if not condition:
        raise SystemExit(what)


def stand_in(folder, name, text):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def run(command, **environment):
    return subprocess.run([str(part) for part in command], env={**os.environ, **environment}, capture_output=True, text=True, timeout=60)


UNSHARE = """
case " $* " in *" --user "*) [ "$USERS" ] || exit 1 ;; *) [ "$MOUNTS" ] || exit 1 ;; esac
[ ! "$WAY" ] || echo "$*" >>"$WAY"
while [ "$1" != -- ]; do case $1 in private) ;; --*) ;; *) break ;; esac; shift; done
[ "$1" != -- ] || shift
exec "$@"
"""


def ways(scratch):
    """As root by a mount namespace; without root, or as one that may not mount, by a user namespace; the status passes."""
    tools = scratch / "ways"
    stand_in(tools, "unshare", UNSHARE)
    stand_in(tools, "id", "echo $ID")
    path = f"{tools}:{os.environ['PATH']}"
    for user, mounts, users, by_user in (("0", "1", "1", False), ("1000", "", "1", True), ("0", "", "1", True)):
        log = scratch / "way"
        log.unlink(missing_ok=True)
        done = run([checkout / "cmake/toolchain/privately", "sh", "-c", "exit 7"], PATH=path, ID=user, MOUNTS=mounts, USERS=users, WAY=str(log))
        expect(done.returncode == 7, f"user {user}: status {done.returncode}, not the command's: {done.stderr}")
        killed = run([checkout / "cmake/toolchain/privately", "sh", "-c", "kill -TERM $$"], PATH=path, ID=user, MOUNTS=mounts, USERS=users)
        expect(killed.returncode == -signal.SIGTERM, f"user {user}: the command's signal arrives as status {killed.returncode}")
        expect(("--user --map-root-user" in log.read_text().splitlines()[-1]) == by_user, f"user {user}: {log.read_text()}")


def sentence(scratch):
    """Where neither namespace is allowed: one sentence with Spack's command; once it has installed them, they are used."""
    copy = scratch / "copy"
    shutil.copytree(checkout / "cmake/toolchain", copy / "cmake/toolchain")
    shutil.copy(checkout / "dev", copy / "dev")
    tools = scratch / "forbidden"
    stand_in(tools, "unshare", UNSHARE)
    stand_in(tools, "id", "echo 1000")
    stand_in(tools, "cmake", "exit 1")
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "MOUNTS": "", "USERS": "", "XDG_CACHE_HOME": str(scratch / "cache"), "PENTAD_TOOLCHAIN": ""}
    refused = run([copy / "dev", "shell", "true"], **environment)
    expect(refused.returncode == 1, f"status {refused.returncode} where namespaces are forbidden: {refused.stderr}")
    command = f"spack -e {copy} install && spack env activate {copy}"
    expect(command in refused.stderr and refused.stderr.count("\n") == 1, f"no sentence with {command}: {refused.stderr}")
    expect((checkout / "spack.yaml").exists(), "spack.yaml is gone")
    expect(not (scratch / "cache/pentad").exists(), "a root was begun where it cannot be entered")
    stand_in(tools, "cmake", "exit 0")
    done = run([copy / "dev", "shell", "sh", "-c", "exit 5"], **environment)
    expect(done.returncode == 5, f"what Spack installed is not used: status {done.returncode}: {done.stderr}")


def no_apt(scratch):
    """A host without apt is told which variable it needs."""
    tools = scratch / "no_apt"
    tools.mkdir()
    for tool in ("bash", "dirname", "mkdir", "rm"):
        (tools / tool).symlink_to(shutil.which(tool))
    done = run(["bash", checkout / "cmake/toolchain/make-root", scratch / "cache2/root", "base"], PATH=str(tools), PENTAD_DEBIAN_MIRROR="")
    expect(done.returncode == 1 and "set PENTAD_DEBIAN_MIRROR" in done.stderr and done.stderr.count("\n") == 1, f"without apt: {done}")


def chown(scratch):
    """Succeeds, and changes nothing."""
    file = scratch / "file"
    file.touch()
    done = run([checkout / "cmake/toolchain/ignore-chown", "sh", "-c", f"chown 4321:4321 '{file}' && exit 7"])
    expect(done.returncode == 7, f"chown fails: status {done.returncode}: {done.stderr}")
    expect(file.stat().st_uid == os.getuid() and file.stat().st_gid != 4321, "chown has an effect")


def package(files):
    """The bytes of a .deb."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:xz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo("./" + name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    members = {"debian-binary": b"2.0\n", "control.tar.xz": b"odd", "data.tar.xz": data.getvalue()}
    return b"!<arch>\n" + b"".join(f"{name:<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(content):<10}`\n".encode() + content + b"\n" * (len(content) % 2)
                                   for name, content in members.items())


def unpack_apt(scratch):
    """What apt needs, through dependencies on a package, on either of two and on one that another provides; nothing else."""
    mirror = scratch / "mirror"
    fields = {
        "base-files": "", "mmdebstrap": "", "mount": "", "debian-archive-keyring": "",
        "apt": "Depends: library (>= 1), missing | either:any, virtual\n",
        "mawk": "Pre-Depends: preliminary\n", "library": "", "either": "", "preliminary": "",
        "unrelated": "", "provider": "Provides: other, virtual (= 1)\n", "core": "Essential: yes\n", "base-passwd": "Essential: yes\n",
    }
    contents = {name: {f"share/{name}": b""} for name in fields}
    contents["base-passwd"] = {"usr/share/base-passwd/passwd.master": b"root", "usr/share/base-passwd/group.master": b"root"}
    contents["base-files"] = {"etc/host.conf": b"", "share/base-files": b""}
    contents["mawk"] = {"usr/bin/mawk": b"", "share/mawk": b""}
    entries = []
    for name, text in fields.items():
        content = package(contents[name])
        (mirror / "pool").mkdir(parents=True, exist_ok=True)
        (mirror / "pool" / name).write_bytes(content)
        entries.append(f"Package: {name}\n{text}Filename: pool/{name}\nSHA256: {hashlib.sha256(content).hexdigest()}\n")
    index = lzma.compress("\n".join(entries).encode())
    architectures = ("amd64", "arm64", os.uname().machine)
    for architecture in architectures:
        (mirror / f"dists/sid/main/binary-{architecture}").mkdir(parents=True, exist_ok=True)
        (mirror / f"dists/sid/main/binary-{architecture}/Packages.xz").write_bytes(index)
    (mirror / "dists/sid/InRelease").write_text("SHA256:\n" + "".join(
        f" {hashlib.sha256(index).hexdigest()} {len(index):8d} main/binary-{architecture}/Packages.xz\n" for architecture in architectures))

    def unpacked(folder):
        folder.mkdir()
        return run([sys.executable, checkout / "cmake/toolchain/unpack-apt", mirror.as_uri(), folder])

    folder = scratch / "unpacked"
    done = unpacked(folder)
    expect(done.returncode == 0, f"unpack-apt: {done.stderr}")
    expected = set(fields) - {"unrelated", "base-passwd"}
    expect({path.name for path in (folder / "share").iterdir()} == expected, f"unpacked: {sorted((folder / 'share').iterdir())}")
    expect((folder / "usr/bin/awk").exists() and (folder / "etc/passwd").read_bytes() == b"root", "no awk or passwd")
    expect((folder / "etc/hosts").exists() == pathlib.Path("/etc/hosts").exists(), "another network")

    (mirror / "pool/either").write_bytes(package({"share/either": b"another"}))
    done = unpacked(scratch / "refused")
    expect(done.returncode != 0 and "pool/either is not what the mirror's index says" in done.stderr, f"a changed package: {done}")
    done = run([sys.executable, checkout / "cmake/toolchain/unpack-apt", (scratch / "nowhere").as_uri(), scratch / "refused"])
    expect(done.returncode == 1 and done.stderr.startswith("dev: ") and done.stderr.count("\n") == 1, f"no mirror: {done}")


with tempfile.TemporaryDirectory() as name:
    for test in (ways, sentence, no_apt, chown, unpack_apt):
        test(pathlib.Path(name))
