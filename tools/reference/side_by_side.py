"""Two programs side by side in a page: the sections of a plain script and of the converted one, changed lines marked.

`# -- title ---` begins a section in both programs; `<!-- side by side: example/title -->` is its place in the page. A
program without sections has one, `program`.
"""

import re
from difflib import SequenceMatcher
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "convert-your-model.md"
EXAMPLES = {"own-llama": ("plain.py", "heterotp_tp.py"), "own-model": ("plain.py", "train.py")}
SECTION = re.compile(r"^# -- (.+?) -+$")
FIRST, ONLY = "imports", "program"
BEGIN = "<!-- side by side: {} -->"
END = "<!-- end of side by side -->"
PLACE = re.compile(rf"<!-- side by side: (.+?) -->\n.*?{re.escape(END)}", flags=re.DOTALL)

Shown = tuple[str, list[str]]  # name of a program, lines of it
Pairs = dict[str, tuple[Shown, Shown]]  # by title: of the plain script, of the converted one


class Misplaced(Exception):
    """A place of the page whose section is not in both programs, or a section that differs and has no place."""


def page() -> str:
    """Return the page with all programs as they are now. Raises Misplaced."""
    shown: Pairs = {}
    for example, names in EXAMPLES.items():
        plain, converted = (sections((ROOT / "examples" / example / name).read_text("utf-8")) for name in names)
        for title, lines in converted.items():
            shown[f"{example}/{title}"] = (names[0], plain.get(title, [])), (names[1], lines)
    return with_programs(PAGE.read_text("utf-8"), shown)


def with_programs(text: str, pairs: Pairs) -> str:
    """Return a page with the sections at their places. Raises Misplaced."""
    places = PLACE.findall(text)
    differing = [title for title, ((_, plain), (_, converted)) in pairs.items() if plain != converted]
    if sorted(places) != sorted(differing):
        raise Misplaced(f"{PAGE.name}: has places for {places}, but {differing} differ")
    return PLACE.sub(lambda place: f"{BEGIN.format(place[1])}\n{_pair(*pairs[place[1]])}\n{END}", text)


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
    if len(found) == 1:
        found = {ONLY: found[FIRST]}
    return {title: "\n".join(lines).strip("\n").splitlines() for title, lines in found.items()}


def changed(lines: list[str], others: list[str]) -> list[int]:
    """Return the numbers, from 1, of the lines that are not in the other program."""
    blocks = SequenceMatcher(None, lines, others, autojunk=False).get_matching_blocks()
    same = {block.a + n for block in blocks for n in range(block.size)}
    return [n + 1 for n, line in enumerate(lines) if n not in same and line]


def _pair(plain: Shown, converted: Shown) -> str:
    both = (_block(plain, converted[1]), _block(converted, plain[1]))
    return '\n<div class="side-by-side" markdown>\n\n' + "\n\n".join(both) + "\n\n</div>\n"


def _block(shown: Shown, others: list[str]) -> str:
    name, lines = shown
    numbers = " ".join(map(str, changed(lines, others)))
    marks = f' hl_lines="{numbers}"' if numbers else ""  # an empty list would make the block plain text
    text = "\n".join(lines)
    return f'```python title="{name}"{marks}\n{text}\n```'
