"""Two programs side by side in a page: the sections of a plain script and of the converted one, changed lines marked.

`# -- title ---` begins a section in both programs; `<!-- side by side: title -->` is its place in the page.
"""

import re
from difflib import SequenceMatcher
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "convert-your-model.md"
PROGRAMS = ("plain.py", "train.py")  # of examples/own-model
SECTION = re.compile(r"^# -- (.+?) -+$")
FIRST = "imports"
BEGIN = "<!-- side by side: {} -->"
END = "<!-- end of side by side -->"
PLACE = re.compile(rf"<!-- side by side: (.+?) -->\n.*?{re.escape(END)}", flags=re.DOTALL)


class Misplaced(Exception):
    """A place of the page whose section is not in both programs, or a section that differs and has no place."""


def page() -> str:
    """Return the page with both programs as they are now. Raises Misplaced."""
    plain, converted = (sections((ROOT / "examples" / "own-model" / name).read_text("utf-8")) for name in PROGRAMS)
    return with_programs(PAGE.read_text("utf-8"), plain, converted)


def with_programs(text: str, plain: dict[str, list[str]], converted: dict[str, list[str]]) -> str:
    """Return a page with the sections at their places. Raises Misplaced."""
    places = PLACE.findall(text)
    differing = [title for title in converted if converted[title] != plain.get(title)]
    if sorted(places) != sorted(differing):
        raise Misplaced(f"{PAGE.name}: has places for {places}, but {differing} differ in {' and '.join(PROGRAMS)}")

    def filled(place: re.Match[str]) -> str:
        title = place[1]
        return f"{BEGIN.format(title)}\n{_pair(plain[title], converted[title])}\n{END}"

    return PLACE.sub(filled, text)


def sections(program: str) -> dict[str, list[str]]:
    """Return the lines of a program by section; those before the first section without the docstring."""
    found: dict[str, list[str]] = {FIRST: []}
    title = FIRST
    for line in program.partition('"""\n\n')[2].splitlines():
        if begun := SECTION.match(line):
            title = begun[1]
            found[title] = []
        else:
            found[title].append(line)
    return {title: "\n".join(lines).strip("\n").splitlines() for title, lines in found.items()}


def changed(lines: list[str], others: list[str]) -> list[int]:
    """Return the numbers, from 1, of the lines that are not in the other program."""
    blocks = SequenceMatcher(None, lines, others, autojunk=False).get_matching_blocks()
    same = {block.a + n for block in blocks for n in range(block.size)}
    return [n + 1 for n, line in enumerate(lines) if n not in same and line]


def _pair(plain: list[str], converted: list[str]) -> str:
    both = (_block(PROGRAMS[0], plain, converted), _block(PROGRAMS[1], converted, plain))
    return '\n<div class="side-by-side" markdown>\n\n' + "\n\n".join(both) + "\n\n</div>\n"


def _block(name: str, lines: list[str], others: list[str]) -> str:
    numbers = " ".join(map(str, changed(lines, others)))
    marks = f' hl_lines="{numbers}"' if numbers else ""  # an empty list would make the block plain text
    shown = "\n".join(lines)
    return f'```python title="{name}"{marks}\n{shown}\n```'
