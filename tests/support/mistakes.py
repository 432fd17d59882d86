"""The table of mistakes in docs/convert-your-model.md, which tests/support/ranks/own_loop.py makes on purpose."""

import re
from dataclasses import dataclass

from support.pages import DOCS
from support.places import RANK_SCRIPTS

PAGE, SCRIPT = DOCS / "convert-your-model.md", RANK_SCRIPTS / "own_loop.py"


@dataclass(frozen=True)
class Mistake:
    """A row of the table; … stands for variable parts of the message."""

    name: str
    exit_code: int
    message: str

    def is_told_by(self, text):
        """Return whether a line of a log is the message."""
        return any(re.search(self._pattern(), line) for line in text.splitlines())

    def _pattern(self):
        return ".*".join(map(re.escape, self.message.split("…")))


def documented():
    """Return the mistakes that the page lists."""
    rows = re.findall(r"^\| ([^|]+) \| (\d+) \| `([^`]+)` \| [^|]+ \|$", PAGE.read_text(), flags=re.MULTILINE)
    return [Mistake(name, int(code), message) for name, code, message in rows]


def made():
    """Return the names of the mistakes that the script can make."""
    return set(re.findall(r'MISTAKE [!=]= "([^"]+)"', SCRIPT.read_text()))
