"""Comments are read one by one, in tooltips and on the pages of the API: words.py CHECKOUT. No sentence of a comment in include, lib and examples begins
with "Of", which leaves out the noun that the sentence is about."""
import pathlib
import re
import sys

# At the beginning of a line, behind the end of a sentence or part of one, or behind a command of doxygen. `Of` in backquotes is a name.
BEGINS_WITH_OF = re.compile(r"(?:^|[.:;!?)\"] |@(?:param )?\w+ )Of\b")

checkout = pathlib.Path(sys.argv[1])
problems, seen = [], 0
for source in sorted(path for folder in ("include", "lib", "examples") for path in (checkout / folder).rglob("*.[ch]pp")):
    for number, line in enumerate(source.read_text().splitlines(), 1):
        if "//" not in line:
            continue
        seen += 1
        if BEGINS_WITH_OF.search(line[line.index("//"):].lstrip("/< ")):
            problems.append(f'{source.relative_to(checkout)}:{number}: a sentence begins with "Of": begin with the noun that it is about')
if seen < 1000:
    problems.append(f"{seen} lines of comments found: this test no longer sees them")
print("\n".join(problems) if problems else f"{seen} lines of comments")
sys.exit(1 if problems else 0)
