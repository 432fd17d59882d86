"""Every line by which heterotp_trainer.parallelize refuses something is in docs/convert-your-model.md."""

import ast

import pytest
from support.mistakes import refusals
from support.places import ROOT

TITLES = ("Before anything is cut", "By comparing ranks and small copies", "By weights, and in forward")
DOCUMENTED = [message for title in TITLES for message in refusals(title).values()]
# of commands that read directories: their messages are about paths
APART = {"export.py", "config_model.py"}
FILES = [
    path for path in sorted((ROOT / "trainer/heterotp_trainer/parallelize").glob("*.py")) if path.name not in APART
]
SHORTEST = 12  # of a constant part of a message that tells it from others


def raised(path):
    """Return the constant parts of each message of InputError in a file, with its line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "InputError":
            texts = [part.value for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant)]
            yield node.lineno, [text for text in texts if isinstance(text, str) and len(text) >= SHORTEST]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_message_is_documented(path):
    for line, constants in raised(path):
        told = [text for text in constants if any(text in message for message in DOCUMENTED)]
        assert told or not constants, f"{path.name}:{line}: {constants} is not in the page"


def test_messages_are_found():
    assert sum(1 for path in FILES for _ in raised(path)) > 30
