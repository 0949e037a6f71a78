"""check.py SCRATCH COMPILER FLAGS PROGRAM...: no program compiles with PENTAD_WRONG, and the compiler says of each what its lines
`// expect: <regex>` ask for; without PENTAD_WRONG all of them compile.

All programs are compiled as one unit, each in a namespace of its own unless it specialises a template; what the compiler says is a program's
where it names the program's file. A program of which that lacks something is compiled by itself: an earlier one may have had the same error.
FLAGS is a file with a flag of the compiler a line.
"""
import pathlib
import re
import shlex
import subprocess
import sys

scratch, compiler, flag_file, *programs = sys.argv[1:]
programs = [pathlib.Path(p) for p in programs]
flags = []
for line in open(flag_file):
    line = line.strip().removeprefix("SHELL:")  # how CMake marks several flags in one
    if line not in ("-I", "-D"):  # what is left of an empty list
        flags += shlex.split(line)
if "clang" in pathlib.Path(compiler).name:
    flags.append("-ferror-limit=0")  # it would stop after 20


def compiled(source, *more):
    run = subprocess.run([compiler, *flags, *more, "-fsyntax-only", f"-I{programs[0].parent}", source], capture_output=True, text=True)
    return run.returncode == 0, run.stdout + run.stderr


def errors_in(text):
    """The errors, each with the lines that lead to it and its notes, without the lines of code that are quoted."""
    found, lines, has_error = [], [], False
    for line in text.splitlines():
        if has_error and re.match(r"In file included from |\S+: (In|At) |\S+: (fatal )?error:", line):
            found.append("\n".join(lines))
            lines, has_error = [], False
        if not re.match(r" *[0-9]* \|", line):
            lines.append(line)
        has_error = has_error or ": error:" in line
    return found + ["\n".join(lines)] if has_error else found


includes, bodies = {}, []
for program in programs:
    text = program.read_text()
    includes |= dict.fromkeys(re.findall(r'^#include [<"].*', text, re.M))
    body = f'#include "{program}"\n'
    bodies.append(body if re.search(r"^template <>", text, re.M) else f"namespace {program.stem} {{\n{body}}}\n")
unit = pathlib.Path(scratch) / "must_not_compile.cpp"
unit.write_text("\n".join(includes) + "\n" + "".join(bodies))

failures, alone = [], 0
right, text = compiled(unit)
if not right:
    failures.append(f"The right programs do not compile:\n{text}")
errors = errors_in(compiled(unit, "-DPENTAD_WRONG")[1])
for program in programs:
    expected = re.findall(r"// expect: (.+)", program.read_text())
    if not expected:
        failures.append(f"{program} has no line `// expect: <regex>`, so any error would do.")
    own = "\n".join(error for error in errors if f"/{program.name}:" in error)
    if all(re.search(one, own) for one in expected):
        continue
    alone += 1
    wrong_compiles, own = compiled(program, "-DPENTAD_WRONG")
    own = "\n".join(errors_in(own))
    if wrong_compiles:
        failures.append(f"{program}: the wrong program compiles.")
    failures += [f"{program} does not compile, but the compiler does not say /{one}/:\n{own}" for one in expected if not re.search(one, own)]
print(*failures, f"{len(programs)} programs, {alone} of them by themselves, {len(failures)} failures", sep="\n")
sys.exit(bool(failures))
