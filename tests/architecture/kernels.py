"""Every kernel is compiled once in lib/. kernels.py CHECKOUT. A kernel is a function template of an element and an execution
space, or of an execution space alone, in a header of include/pentad/kernels; behind it stands PENTAD_KERNEL(name) or one of
its kind (kernels/compiled.hpp)."""
import pathlib
import re
import sys

MACROS = {
    "class T, class Exec": "PENTAD_KERNEL",
    "class Gate, class T, class Exec": "PENTAD_KERNEL",
    "class From, class To, class Exec": "PENTAD_KERNEL",
    "Chosen chosen, class Exec": "PENTAD_KERNEL_OF_EXEC",
    "class A, class Exec": "PENTAD_KERNEL_OF_ACCUMULATORS",
    "class Exec": "PENTAD_KERNEL_OF_EXEC",
}
KERNEL = re.compile(r"^template <(" + "|".join(MACROS) + r")>\n[^(;{]*?\b(\w+)\((?:Exec const& ?exec|Exec const& ?,)", re.M)

root = pathlib.Path(sys.argv[1]) / "include/pentad/kernels"
problems, seen = [], 0
for header in sorted(root.glob("*.hpp")):
    text = header.read_text()
    public = re.sub(r"^namespace detail \{$.*?^\} // namespace detail$", lambda m: "\n" * m[0].count("\n"), text, flags=re.M | re.S)
    for found in KERNEL.finditer(public):
        parameters, name = found.groups()
        if re.search(r"[^\w]F(unctor)?&&", public[found.start():public.index("{", found.end())]):
            continue
        seen += 1
        if not re.search(rf"^{MACROS[parameters]}\({name}\b", text, re.M):
            line = public.count("\n", 0, found.start()) + 1
            problems.append(f"{header.name}:{line}: {name}: behind it stands {MACROS[parameters]}({name})")
if seen < 50:
    problems.append(f"{seen} kernels found: this test no longer sees them")
for problem in problems:
    print(problem)
sys.exit(1 if problems else 0)
