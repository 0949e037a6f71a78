"""A floor includes only itself and floors below it: floors.py include/pentad. Also: every header says which room it
is, has `#pragma once`, and is short enough to read in a sitting; pentad.hpp includes every one."""
import pathlib
import re
import sys

FLOORS = ("mesh layout pipeline planner observe comm tensor kernels layers context experts zero io train report").split()
LONGEST = 600

root = pathlib.Path(sys.argv[1])
problems = []
headers = sorted(root.rglob("*.hpp"))
if not headers:
    problems.append(f"no headers under {root}")
for header in headers:
    name = header.relative_to(root.parent)
    text = header.read_text()
    lines = text.splitlines()
    if len(lines) > LONGEST:
        problems.append(f"{name}: {len(lines)} lines; {LONGEST} at most")
    if "#pragma once" not in lines:
        problems.append(f"{name}: no #pragma once")
    if header.parent == root:
        continue  # pentad.hpp stands on the roof
    floor = header.relative_to(root).parts[0]
    if floor not in FLOORS:
        problems.append(f"{name}: {floor} is not a floor; those are {' '.join(FLOORS)}")
        continue
    if not lines or not re.match(rf"// Room: {floor}\b", lines[0]):
        problems.append(f"{name}:1: does not begin with `// Room: {floor}...`")
    for number, line in enumerate(lines, 1):
        include = re.match(r'\s*#\s*include\s*([<"])([^>"]+)', line)
        if not include:
            continue
        if include[1] == '"' and not include[2].startswith("pentad/"):
            problems.append(f'{name}:{number}: includes "{include[2]}" by a relative name; use <pentad/...>')
        elif include[2].startswith("pentad/"):
            parts = include[2].split("/")
            if len(parts) < 3 or parts[1] not in FLOORS:
                problems.append(f"{name}:{number}: includes <{include[2]}>, which is on no floor")
            elif FLOORS.index(parts[1]) > FLOORS.index(floor):
                problems.append(f"{name}:{number}: {floor} includes <{include[2]}> of a higher floor")
        elif floor in FLOORS[:4] and re.match(r"mpi\.h|Kokkos|omp\.h|cuda", include[2]):
            problems.append(f"{name}:{number}: the pure floor {floor} includes <{include[2]}>")

everything = (root / "pentad.hpp").read_text()
for header in headers:
    name = header.relative_to(root.parent)
    if header.parent != root and "detail" not in name.parts and f"#include <{name}>" not in everything:
        problems.append(f"pentad/pentad.hpp: does not include <{name}>")

print("\n".join(problems) if problems else f"{len(headers)} headers, every include points down")
sys.exit(1 if problems else 0)
