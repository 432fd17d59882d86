"""The tables of mistakes in docs/convert-your-model.md, which tests make on purpose; … stands for variable parts.

tests/support/ranks/own_loop.py makes those with an exit code; `refusals` are of models and plans.
"""

import re
from dataclasses import dataclass

from support.pages import DOCS
from support.places import RANK_SCRIPTS

PAGE, SCRIPT = DOCS / "convert-your-model.md", RANK_SCRIPTS / "own_loop.py"


@dataclass(frozen=True)
class Mistake:
    """A row of the table of mistakes in a script."""

    name: str
    exit_code: int
    message: str

    def is_told_by(self, text):
        """Return whether a line of a log is the message."""
        return any(re.search(pattern(self.message), line) for line in text.splitlines())


def pattern(message):
    """Return the regular expression of a documented message."""
    return ".*".join(map(re.escape, message.split("…")))


def documented():
    """Return the mistakes that the page lists."""
    rows = re.findall(r"^\| ([^|]+) \| (\d+) \| `([^`]+)` \| [^|]+ \|$", PAGE.read_text(), flags=re.MULTILINE)
    return [Mistake(name, int(code), message) for name, code, message in rows]


def made():
    """Return the names of the mistakes that the script can make."""
    return set(re.findall(r'MISTAKE [!=]= "([^"]+)"', SCRIPT.read_text()))


def refusals(title):
    """Return by mistake the message that the page lists under a heading."""
    section = PAGE.read_text().partition(f"\n### {title}\n")[2].partition("\n#")[0]
    found = dict(re.findall(r"^\| ([^|`]+) \| `([^`]+)` \|$", section, flags=re.MULTILINE))
    assert found, f"{PAGE.name}: no table under {title!r}"
    return found
