"""Which module includes which: modules.py CHECKOUT. The modules are the folders of include/pentad; a header includes its
own module and those that the graph below allows, directly or through others. The headers of a module's folder itself are
public, and MODULE.hpp beside the folder includes them all; those in folders below are not. Examples for users and pages
include MODULE.hpp only. Also: every header begins with a comment, has `#pragma once` and is short enough to be read in one
sitting."""
import pathlib
import re
import sys

# What each module builds on. Whoever adds an edge says why it does not make a module harder to use alone.
GRAPH = {
    "mesh": "",  # without MPI and Kokkos, as all up to io
    "layout": "mesh",
    "random": "layout",  # by itself, as it needs Random123
    "pipeline": "mesh",
    "model": "layout",
    "strategy": "model pipeline",
    "planner": "strategy observe",
    "observe": "layout",
    "io": "layout model pipeline planner random",
    "checkpoint": "io",
    "memory": "observe",
    "comm": "memory layout observe io",
    "kernels": "memory layout observe",  # no comm: what goes on beside a kernel is told by observe
    "tensor": "comm memory layout",
    "product": "tensor kernels",
    "layers": "product model random",  # the maps of tensor parallelism on a grid are products of distributed matrices
    "context": "layers",
    "experts": "layers",
    "zero": "layers",
    "train": "layers context experts zero pipeline planner io checkpoint",
    "report": "planner pipeline observe io",
    "program": "comm io",
}
PURE = "mesh layout random model pipeline planner observe io checkpoint".split()
LONGEST = 600


def reachable(module):
    below = GRAPH[module].split()
    return {module, *below, *(one for name in below for one in reachable(name))}


checkout = pathlib.Path(sys.argv[1])
root = checkout / "include/pentad"
problems = []
headers = sorted(root.rglob("*.hpp"))
if not headers:
    problems.append(f"no headers under {root}")
for header in headers:
    name = header.relative_to(root.parent)
    lines = header.read_text().splitlines()
    if len(lines) > LONGEST:
        problems.append(f"{name}: {len(lines)} lines; {LONGEST} at most")
    if "#pragma once" not in lines:
        problems.append(f"{name}: no #pragma once")
    if not lines or not lines[0].startswith("// "):
        problems.append(f"{name}:1: does not begin with a comment that says what it is for")
    if header.parent == root:
        continue  # checked below
    module = header.relative_to(root).parts[0]
    if module not in GRAPH:
        problems.append(f"{name}: {module} is no module; those are {' '.join(GRAPH)}")
        continue
    for number, line in enumerate(lines, 1):
        include = re.match(r'\s*#\s*include\s*([<"])([^>"]+)', line)
        if not include:
            continue
        if include[1] == '"' and not include[2].startswith("pentad/"):
            problems.append(f'{name}:{number}: includes "{include[2]}" by a relative name; use <pentad/...>')
        elif include[2].startswith("pentad/"):
            parts = include[2].split("/")
            if len(parts) < 3 or parts[1] not in GRAPH:
                problems.append(f"{name}:{number}: includes <{include[2]}>, which is in no module")
            elif parts[1] != module and len(parts) > 3:
                problems.append(f"{name}:{number}: includes <{include[2]}>, which is internal to {parts[1]}")
            elif parts[1] not in reachable(module):
                problems.append(f"{name}:{number}: {module} may not include <{include[2]}>: it builds on {GRAPH[module] or 'nothing'}")
        elif module in PURE and re.match(r"mpi\.h|Kokkos|omp\.h|cuda", include[2]):
            problems.append(f"{name}:{number}: {module} is used without MPI and Kokkos, and includes <{include[2]}>")



def includes(path):
    return re.findall(r'^\s*#\s*include\s*<(pentad/[^>]+)>', path.read_text(), re.M)


# Where a header uses Kokkos or MPI it includes them, itself or through others: it is compiled with both read already.
def reads(header, wanted, seen):
    if header in seen:
        return False
    seen.add(header)
    text = header.read_text()
    return f"<{wanted}>" in text or any(reads(root.parent / name, wanted, seen) for name in includes(header) if (root.parent / name).exists())


for header in headers:
    code = re.sub(r"//.*", "", header.read_text())
    for wanted, uses in (("Kokkos_Core.hpp", r"\bKokkos::|\bKOKKOS_[A-Z]*(LAMBDA|FUNCTION)\b"), ("mpi.h", r"\bMPI_\w")):
        if re.search(uses, code) and not reads(header, wanted, set()):
            problems.append(f"{header.relative_to(root.parent)}: uses what <{wanted}> declares, and nothing that it includes reads that")


# The functions of a header that are no templates are in its module's folder impl. The header includes them where lib/
# has not compiled them.
compiled = {path.stem: includes(path) for path in (checkout / "lib/functions").glob("*.cpp")}
for name in (header.relative_to(root.parent).as_posix() for header in headers):
    if "/impl/" not in name:
        continue
    declares = includes(root.parent / name)[0]
    in_tensor = name.split("/")[1] in ("observe", "memory", "comm", "tensor") or declares == "pentad/io/file.hpp"
    wanted = "PENTAD_COMPILED_TENSOR" if in_tensor else "PENTAD_COMPILED_FUNCTIONS"
    sign = "" if re.search(r"\bPENTAD_EXTERN template\b", (root.parent / name).read_text()) else "!"
    if not (root.parent / declares).read_text().endswith(f"#if {sign}{wanted}\n#include <{name}>\n#endif\n"):
        problems.append(f"{declares}: does not end by including <{name}> under {wanted}")
    unit = "io_file" if declares == "pentad/io/file.hpp" else name.split("/")[1]
    if name not in compiled.get(unit, []):
        problems.append(f"{name}: lib/functions/{unit}.cpp does not compile it")


facades = {f"pentad/{module}.hpp": [f"pentad/{module}/{header.name}" for header in sorted((root / module).glob("*.hpp"))] for module in GRAPH}
facades["pentad/pentad.hpp"] = sorted(facades)
for header in root.glob("*.hpp"):
    if f"pentad/{header.name}" not in facades:
        problems.append(f"pentad/{header.name}: a header in no module")
for facade, wanted in facades.items():
    path = root.parent / facade
    found = includes(path) if path.exists() else []
    problems += [f"{facade}: does not include <{name}>" for name in sorted({*wanted} - {*found})]
    problems += [f"{facade}: includes <{name}>, which is not a public header of the module" for name in sorted({*found} - {*wanted})]

FOR_USERS = ["README.md", "docs/**/*.md", "examples/small/*", "examples/own_block/*", "examples/thirty_lines/*", "examples/fields.hpp", "examples/fft/*", "examples/stencil/*",
             "examples/conjugate_gradient/*", "tests/install/*"]
for path in {path for pattern in FOR_USERS for path in checkout.glob(pattern) if path.is_file()}:
    problems += [f"{path.relative_to(checkout)}: includes <{name}>: users include MODULE.hpp" for name in includes(path) if name not in facades]
for path in checkout.glob("examples/**/*.[ch]pp"):
    problems += [f"{path.relative_to(checkout)}: includes <{name}>, which is not public" for name in includes(path) if name.count("/") > 2]

# Ranks of a machine share its processors: an example that does not say so gives all of them to each rank.
for path in checkout.glob("examples/**/*.cpp"):
    text = path.read_text()
    if re.search(r"comm::Environment|run_on_ranks", text) and re.search(r"Kokkos::ScopeGuard const \w+\((?!(?:pentad::)?comm::kokkos_settings)", text):
        problems.append(f"{path.relative_to(checkout)}: starts Kokkos without comm::kokkos_settings()")

print("\n".join(problems) if problems else f"{len(headers)} headers in {len(GRAPH)} modules, every include is in the graph")
sys.exit(1 if problems else 0)
