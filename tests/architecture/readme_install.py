"""README.md's way to install works: readme_install.py CHECKOUT CMAKE FLAG... runs its commands, with other folders and these flags, in the working directory, and
configures a project outside with what they installed."""
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

root, cmake, flags = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3:]
work = pathlib.Path("readme_install").resolve()
shutil.rmtree(work, ignore_errors=True)


def run(*command):
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"{shlex.join(map(str, command))}\n{result.stdout}{result.stderr}")


section = (root / "README.md").read_text().split("## Use it from CMake", 1)[1]
commands = re.search(r"```sh\n(.*?)```", section, re.S)[1].splitlines()
folder = next(words[words.index("-B") + 1] for words in map(shlex.split, commands) if "-B" in words)
for command in commands:
    words = shlex.split(command.replace(folder, str(work / "built")).replace("PREFIX", str(work / "prefix")), comments=True)
    if words[0] != "cmake":
        sys.exit(f"not a command of CMake: {command}")
    run(cmake, *words[1:], *(flags if "-S" in words else []))
run(cmake, "-S", root / "tests/install", "-B", work / "outside", f"-Dpentad_ROOT={work / 'prefix'}", *flags)
shutil.rmtree(work)
