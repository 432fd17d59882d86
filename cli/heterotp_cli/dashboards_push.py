"""Push boards: first decide on all of them, then write those that differ.

Each version that this command saves carries a hash of its content in its message, the only field of a version that
Grafana leaves to its clients. A board whose newest version has no hash was saved by another client since; its JSON
cannot be compared, because Grafana may rewrite it.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from heterotp_cli.errors import Failed
from heterotp_cli.grafana import Grafana, Json, Stored

Verdict = Literal["created", "updated", "moved", "unchanged", "overwritten", "changed by hand", "provisioned"]
_MESSAGE = re.compile(r"heterotp dashboards push, content ([0-9a-f]{16})")
_SET_BY_GRAFANA = ("id", "version")


def content_hash(board: Json) -> str:
    """Return a hash of a board without the fields that Grafana sets."""
    content = {key: value for key, value in board.items() if key not in _SET_BY_GRAFANA}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def message(board: Json) -> str:
    """Return the message to save a board with."""
    return f"heterotp dashboards push, content {content_hash(board)}"


def judge(board: Json, found: Stored | None, folder: str | None, force: bool) -> Verdict:
    """Return what to do with a board; folder None: it stays in its folder."""
    if found is None:
        return "created"
    if found.provisioned:
        return "provisioned"
    pushed = _MESSAGE.fullmatch(found.message)
    stored_hash = pushed[1] if pushed else content_hash(found.content)
    if stored_hash == content_hash(board):
        return "unchanged" if folder in (None, found.folder) else "moved"
    if pushed:
        return "updated"
    return "overwritten" if force else "changed by hand"


@dataclass(frozen=True)
class Outcome:
    """The result for one board, and its address."""

    uid: str
    verdict: Verdict
    address: str


def push(
    grafana: Grafana, boards: Sequence[Json], folder: str | None, create_folder: bool, force: bool
) -> list[Outcome]:
    """Bring all boards to their newest content, or raise Failed before the first is written."""
    grafana.check_version()
    home = None if folder is None else _folder(grafana, folder, create_folder)
    found = [grafana.board(board["uid"]) for board in boards]
    verdicts = [judge(board, stored, home, force) for board, stored in zip(boards, found, strict=True)]
    _refuse(boards, verdicts)
    outcomes = []
    for board, stored, verdict in zip(boards, found, verdicts, strict=True):
        address = f"{grafana.url}d/{board['uid']}"
        if verdict != "unchanged":
            into = home if home is not None else stored.folder if stored else ""
            address = grafana.save(board, into, message(board), stored)
        outcomes.append(Outcome(board["uid"], verdict, address))
    return outcomes


def _folder(grafana: Grafana, name: str, create: bool) -> str:
    uid = grafana.folder(name)
    if uid is not None:
        return uid
    if not create:
        raise Failed(f"--folder: '{name}': no such folder at {grafana.url}: create it, or add --create-folder")
    return grafana.create_folder(name)


def _refuse(boards: Sequence[Json], verdicts: Sequence[Verdict]) -> None:
    """Raise Failed for boards that this command must not change."""
    refused = {
        verdict: [b["uid"] for b, v in zip(boards, verdicts, strict=True) if v == verdict] for verdict in verdicts
    }
    if uids := refused.get("provisioned"):
        raise Failed(
            f"{', '.join(uids)}: comes from files that Grafana reads itself (the chart's ConfigMap?): change those"
        )
    if uids := refused.get("changed by hand"):
        raise Failed(f"{', '.join(uids)}: changed by hand since the last push: --force overwrites the changes")
