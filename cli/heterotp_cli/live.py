"""The two views of a run: a live table on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from heterotp_api.gang_text import gang_text
from heterotp_api.ranks import RankPlace
from heterotp_api.trainer_status import TrainerStatus
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from heterotp_cli import rows
from heterotp_cli.colours import BUSY, STRAGGLER, WAIT

BAR_WIDTH = 20
ROOM_AROUND_TABLE = 12  # lines that are not ranks


class View(Protocol):
    """Shows statuses and notes until it is closed."""

    def show(self, status: TrainerStatus) -> None:
        """Show a new status."""

    def note(self, text: str) -> None:
        """Show one line."""

    def close(self) -> None:
        """Release the terminal."""


class PlainView:
    """One line when the state changes and every few seconds, and one per decision."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.time) -> None:
        """clock: unix seconds."""
        self._console, self._clock = console, clock
        self._printed = rows.Printed()

    def show(self, status: TrainerStatus) -> None:
        """Print what is due."""
        now = time.monotonic()
        if rows.decision_due(status, self._printed):
            self.note(rows.decision_line(status, self._clock()))
            self._printed = replace(self._printed, decision_id=status.decision_id)
        if rows.plain_due(status, self._printed, now):
            self.note(rows.plain_line(status, self._clock()))
            self._printed = replace(self._printed, state=status.state, at=now)

    def note(self, text: str) -> None:
        """Print one line."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Do nothing."""


class TableView:
    """A table that is redrawn in place; notes scroll above it."""

    def __init__(self, console: Console, places: Sequence[RankPlace]) -> None:
        self._console, self._places = console, places
        self._live = Live(Text("starting the ranks ..."), console=console, refresh_per_second=4, transient=False)
        self._live.start()

    def show(self, status: TrainerStatus) -> None:
        """Draw the status."""
        room = max(4, self._console.height - ROOM_AROUND_TABLE)
        self._live.update(render(status, self._places, room))

    def note(self, text: str) -> None:
        """Print one line above the table."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Leave the last table on the terminal."""
        self._live.stop()


def open_view(console: Console, places: Sequence[RankPlace]) -> View:
    """Return the view that fits the console."""
    return TableView(console, places) if console.is_terminal else PlainView(console)


def render(status: TrainerStatus, places: Sequence[RankPlace], room: int) -> RenderableType:
    """Return headline, progress bar, numbers, the table of ranks and the last decision."""
    shown = rows.rows(status, places, room)
    parts: list[RenderableType] = [
        Text(rows.headline(status), style="bold", overflow="ellipsis", no_wrap=True),
        _progress_line(status),
        Text(rows.numbers(status), overflow="ellipsis", no_wrap=True),
    ]
    if shown:
        parts.append(_table(shown, rows.balancing_columns(status, places)))
    if len(shown) < len(status.ranks):
        parts.append(Text(f"the slowest {len(shown)} of {len(status.ranks)} ranks", style="dim"))
    if stalled := rows.stall(status):
        parts.append(Text(stalled, style=STRAGGLER))
    if gang := gang_text(status.gang):
        parts.append(Text(gang, style=STRAGGLER))
    if decision := rows.decision(status):
        parts.append(Text(decision))
    return Group(*parts)


def _progress_line(status: TrainerStatus) -> Table:
    line = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=status.total_iterations or 1, completed=status.iteration, width=36)
    line.add_row(rows.progress(status), bar, f"{rows.clock(status.eta_seconds)} left")
    return line


def _table(shown: Sequence[rows.Row], balancing: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("rank", justify="right", no_wrap=True)
    table.add_column("group", no_wrap=True)
    table.add_column("device")  # may shrink, so that a narrow terminal never cuts numbers
    for name in ("share", "matmul", "wait", "rel. speed", *balancing):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(_one_line(bar_header()))
    for r in shown:
        numbers = (r.share, r.matmul, r.wait, r.speed, *(getattr(r, name) for name in balancing))
        style = STRAGGLER if r.straggler else ""
        table.add_row(str(r.rank), r.group, _one_line(Text(r.device)), *numbers, _one_line(bar(r)), style=style)
    return table


def _one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def bar_header() -> Text:
    """Return the legend of the bars."""
    return Text.assemble(("█", BUSY), " busy ", ("█", WAIT), " wait")


def bar(r: rows.Row) -> Text:
    """Return one rank's iteration: computing, then waiting."""
    busy = round(r.busy * BAR_WIDTH)
    waiting = min(BAR_WIDTH - busy, round(r.waiting * BAR_WIDTH))
    return Text.assemble(("█" * busy, BUSY), ("█" * waiting, WAIT))
