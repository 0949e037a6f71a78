"""Comments are read one by one, in tooltips and on the pages of the API: words.py CHECKOUT. No sentence of a comment in include, lib and examples begins
with "Of", and no comment with "The same" or "Those", which leave out the noun that it is about."""
import pathlib
import re
import sys

# At the beginning of a line, behind the end of a sentence or part of one, or behind a command of doxygen. `Of` in backquotes is a name.
BEGINS_WITH_OF = re.compile(r"(?:^|[.:;!?)\"] |@(?:param )?\w+ )Of\b")

LEANS_ON_ANOTHER = re.compile(r"(?:The same|Those)\b")

checkout = pathlib.Path(sys.argv[1])
problems, seen = [], 0
for source in sorted(path for folder in ("include", "lib", "examples") for path in (checkout / folder).rglob("*.[ch]pp")):
    lines = [line.strip() for line in source.read_text().splitlines()]
    for number, (before, line) in enumerate(zip(["", *lines], lines), 1):
        if "//" not in line:
            continue
        seen += 1
        comment, where = line[line.index("//"):].lstrip("/< "), f"{source.relative_to(checkout)}:{number}"
        if BEGINS_WITH_OF.search(comment):
            problems.append(f'{where}: a sentence begins with "Of": begin with the noun that it is about')
        if line.lstrip().startswith("//") and not before.startswith("//") and LEANS_ON_ANOTHER.match(comment):
            problems.append(f"{where}: a comment leans on the one before: begin with the noun that it is about")
if seen < 1000:
    problems.append(f"{seen} lines of comments found: this test no longer sees them")
print("\n".join(problems) if problems else f"{seen} lines of comments")
sys.exit(1 if problems else 0)
