"""What the pages say is there: docs.py CHECKOUT. README.md's program is examples/thirty_lines, small examples are small, links lead to files and headings,
each piece of C++ in docs/hpc.md is in a program that is compiled, and docs/silent-bugs.md names tests that exist: `module/file.cpp` with its "cases", and
programs of tests/must_not_compile. docs/formulas.md names every function of tests/formulas, and in its tables' last columns no other. Files that pages and
comments name exist, and so do flags that pages name; what pages count is as many as they say, or is not counted there; README.md installs from folders that are built."""
import ast
import json
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1]).resolve()
problems = []
pages = {page: page.read_text() for page in (*root.glob("*.md"), *root.glob("docs/*.md"))}

program = re.search(r"```cpp\n(.*?)```", pages[root / "README.md"], re.S)[1]
example = (root / "examples/thirty_lines/thirty_lines.cpp").read_text()
if example.split("\n", 1)[1] != program:
    problems.append("README.md: its program is not examples/thirty_lines/thirty_lines.cpp without the first line")

fields = [source for program in ("fft", "stencil", "conjugate_gradient") for source in (root / "examples" / program).glob("*.?pp")]
for example, most in [*((small, 80) for small in (root / "examples/small").glob("*.cpp")), (root / "examples/own_block/convolution.hpp", 190),
                      *((source, 200) for source in fields)]:
    lines = len(example.read_text().splitlines())
    if lines > most:
        problems.append(f"{example.relative_to(root)}: {lines} lines; {most} at most")



def unindented(lines):
    """Without what all lines are indented by, and without empty lines, which pages leave out."""
    lines = [line for line in lines if line.strip()]
    indent = min((len(line) - len(line.lstrip()) for line in lines), default=0)
    return [line[indent:] for line in lines]


compiled = [[line for line in source.read_text().splitlines() if line.strip()]
            for source in (*fields, root / "examples/fields.hpp", root / "tests/tensor/hpc_guide.cpp")]
guide = re.findall(r"```cpp\n(.*?)```", pages[root / "docs/hpc.md"], re.S)
for piece in guide:
    lines = unindented(piece.splitlines())
    if not any(unindented(source[at:at + len(lines)]) == lines for source in compiled for at in range(len(source))):
        problems.append(f"docs/hpc.md: no program that is compiled has this piece of code:\n{piece}")
if not guide:
    problems.append("docs/hpc.md: there is no code")


def prose(text):
    """A page without its blocks of code."""
    return re.sub(r"```.*?```", "", text, flags=re.S)


def anchors(text):
    """Of the headings, as GitHub and doxygen name them."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", prose(text), re.M)}


for page, text in pages.items():
    for target, anchor in re.findall(r"\]\(([^)#:]*)#?([^):]*)\)", prose(text)):
        linked = (page.parent / target).resolve() if target else page
        if not linked.exists():
            problems.append(f"{page.relative_to(root)}: links to {target}, which is not there")
        elif anchor and anchor not in anchors(pages.get(linked, "")):
            problems.append(f"{page.relative_to(root)}: links to #{anchor}, a heading that {linked.name} does not have")

cited = 0
held_by = pages[root / "docs/silent-bugs.md"]
for row in held_by.splitlines():
    names = ""  # of the cases of the last file that the row's last column names
    held = row.split("|")[-2] if row.startswith("|") else ""
    for file, program, case in re.findall(r'`(\w+/\w+\.cpp)`|`(\w+)`|"([^"]+)"', held):
        cited += 1
        if file:
            path = root / "tests" / file
            names = " ".join(re.findall(r"TEST_CASE\(([^\n]*)", path.read_text())) if path.exists() else ""
            if not names:
                problems.append(f"docs/silent-bugs.md: there is no test {file}")
        elif program and not (root / f"tests/must_not_compile/{program}.cpp").exists():
            problems.append(f"docs/silent-bugs.md: there is no program {program}")
        elif case and case not in names:
            problems.append(f'docs/silent-bugs.md: no case there has "{case}" in its name')
if not cited:
    problems.append("docs/silent-bugs.md: no test is named")

functions = set()
for header in (root / "tests/formulas").glob("*.hpp"):
    public = re.sub(r"namespace detail \{.*?\} // namespace detail", "", header.read_text(), flags=re.S)
    functions |= set(re.findall(r"^(?:constexpr|inline)[^=(;{]*?\b(\w+)\(", public, re.M))
formulas = pages[root / "docs/formulas.md"]
named = {name for row in formulas.splitlines() if row.startswith("|") for name in re.findall(r"`(\w+)`", row.split("|")[-2])}
problems += [f"docs/formulas.md: no word of {name}" for name in sorted(functions) if f"`{name}`" not in formulas]
problems += [f"docs/formulas.md: there is no function {name}" for name in sorted(named - functions)]

sources = {file: file.read_text(errors="replace") for folder in ("include", "lib", "examples", "bench", "tests", "cmake") for file in (root / folder).rglob("*")
           if file.suffix in (".hpp", ".cpp", ".cu", ".py", ".txt", ".cmake", ".in")}
everything = [f"/{path.relative_to(root)}" for path in (*sources, *pages, *root.glob("*"), *root.glob("docs/**/*"), *root.glob("tests/**/*"), *root.glob("cmake/**/*"))]
file_name = re.compile(r"(?<![\w/.<-])((?:[\w.-]+/)*[\w-]+\.(?:hpp|cpp|py|cu|cmake))(?![\w/-])")
for file, text in (*pages.items(), *sources.items()):
    if file.name == "CHANGELOG.md":
        continue  # of what was
    mark = {".hpp": "//", ".cpp": "//", ".cu": "//", ".md": ""}.get(file.suffix, "#")
    for line in text.splitlines():
        said = line[line.index(mark):] if mark in line else ""
        for named in file_name.findall(said):
            if named.rsplit(".", 1)[0].rsplit("/", 1)[-1].isupper() or named.startswith(("_", "modeling_")):
                continue  # a placeholder, the end of names, a file of transformers
            if not any(path.endswith("/" + named) for path in everything):
                problems.append(f"{file.relative_to(root)}: names {named}, which is not there")

known = set(re.findall(r"--[a-z][\w-]*", "\n".join(sources.values()) + (root / "dev").read_text()))
slurm = {"--cpu-bind", "--cpus-per-task", "--dependency", "--distribution", "--gpu-bind", "--gpus-per-node", "--gpus-per-task", "--job-name", "--mpi", "--nodes",
         "--ntasks-per-node", "--open-mode", "--requeue", "--signal", "--time"}
for page, text in pages.items():
    if page.name == "CHANGELOG.md":
        continue
    for flag in sorted(set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text)) - known - slurm):
        problems.append(f"{page.relative_to(root)}: no program has {flag}")
    for counted in re.findall(r"\b(?:\d+ tests|(?:\d+|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve) trainers)\b", text):
        problems.append(f"{page.relative_to(root)}: counts by hand: {counted}")

equivalence = ast.parse((root / "tests/reference/equivalence.py").read_text())
listed = next(len(node.value.elts) for node in equivalence.body if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "FIXED")
generators = len(re.findall(r"^    Generator\{", (root / "include/pentad/pipeline/generators.hpp").read_text(), re.M))
for what, count in (("listed runs", listed), ("published ones by name", generators)):
    said = re.search(rf"(\d+) {what}", pages[root / "README.md"])
    if not said or int(said[1]) != count:
        problems.append(f"README.md: there are {count} {what}")

presets = json.loads((root / "CMakePresets.json").read_text())
built = {preset.get("binaryDir", "").replace("${sourceDir}/", "").replace("${presetName}", preset["name"]) for preset in presets["configurePresets"]}
built |= {preset["binaryDir"].replace("${sourceDir}/", "").replace("${presetName}", name["name"]) for preset in presets["configurePresets"]
          if "binaryDir" in preset for name in presets["configurePresets"]}
built |= set(re.findall(r"cmake -S \S+ -B (\S+)", pages[root / "README.md"]))
for page, text in pages.items():
    for folder in re.findall(r"cmake --install (\S+)", text):
        if page.name != "CHANGELOG.md" and folder not in built:
            problems.append(f"{page.relative_to(root)}: nothing is built in {folder}, from which it installs")

print("\n".join(problems) if problems else f"{len(pages)} pages, {cited} citations")
sys.exit(1 if problems else 0)
