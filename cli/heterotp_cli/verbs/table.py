"""`top` as text: one job rank by rank, or all jobs. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from heterotp_api.conditions import REPLACEMENT_ADVISED
from heterotp_api.slowdown import slowdown_text, slowest
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from heterotp_cli.colours import BAD, BUSY, GOOD, STRAGGLER, WAIT
from heterotp_cli.rows import clock, percent, seconds
from heterotp_cli.verbs.formatting import ABSENT, duration, ratio, saved
from heterotp_cli.verbs.view import JobView, RankView

ROOMY = 110  # columns of the terminal from which on the table has wide gaps
LEAST_ROWS = 4
BETWEEN = " · "
MUCH = 0.25  # share of an iteration: a longer wait is coloured
Cell = Callable[[RankView], str]


def _migrated(rank: RankView) -> str:
    """Return the share of columns that others compute for a rank, and `+N` columns that it computes for others."""
    out = percent(rank.migrated_ratio) if rank.migrated_ratio else ""
    into = f"+{rank.columns_in}" if rank.columns_in else ""
    return " ".join(filter(None, (out, into))) or ABSENT


PLACES: dict[str, Cell] = {"group": lambda r: r.group or ABSENT, "node": lambda r: r.node or ABSENT}
NUMBERS: dict[str, Cell] = {
    "share": lambda r: percent(r.share),
    "compute": lambda r: seconds(r.compute_seconds),
    "matmul": lambda r: seconds(r.matmul_seconds),
    "wait": lambda r: seconds(r.wait_seconds),
    "chi": lambda r: ratio(r.slowdown),
    "pruned": lambda r: percent(r.pruned_ratio) if r.pruned_ratio else ABSENT,
    "migrated": _migrated,
    "injected": lambda r: ratio(r.injected_slowdown) if r.injected else ABSENT,
}
COLOURED = {"pruned": BUSY, "migrated": BUSY, "injected": WAIT}


def render(view: JobView, width: int, height: int | None = None, note: str = "") -> RenderableType:
    """Return headline, numbers, ranks, decision and the operator's advice; `height` bounds the ranks shown."""
    above = lines(view, width)
    below = _below(view, note)
    ranks = view.by_slowdown
    if height is not None:
        taken = (
            sum(_height(text, width) for text in (*above, *below)) + 4
        )  # blank line, header, line on omitted ranks, cursor
        ranks = ranks[: max(LEAST_ROWS, height - taken)]
    parts: list[RenderableType] = [*above]
    if ranks:
        parts += [Text(""), _table(ranks, width)]
    total = len(view.live) or view.rank_count or len(view.ranks)
    if 0 < len(ranks) < total:
        parts.append(Text(f"the slowest {len(ranks)} of {total} ranks", style="dim"))
    return Group(*parts, *below)


def _height(text: Text, width: int) -> int:
    return max(1, -(-text.cell_len // max(1, width)))


def lines(view: JobView, width: int) -> list[Text]:
    """Return state, progress and iteration times of a job."""
    return [line for parts in (_headline(view), _progress(view), _times(view)) for line in _packed(parts, width)]


def _headline(view: JobView) -> list[Text]:
    parts: list[str | Text] = [Text(view.name, style="bold"), Text(view.state or "new", style=_style(view))]
    if view.waiting_for:
        parts.append(f"waits: {view.waiting_for}")
    if view.attempt:
        parts.append(f"attempt {view.attempt}")
    if view.rank_count:
        parts.append(f"{view.rank_count} rank{'s' if view.rank_count > 1 else ''}")
    if view.emulated:
        parts.append("emulated")
    if view.strategy:
        parts.append(f"strategy {view.strategy}" + (f" (policy {view.policy})" if view.policy else ""))
    return [part if isinstance(part, Text) else Text(part) for part in parts]


def _style(view: JobView) -> str:
    state = view.state.lower()
    if state in ("running", "succeeded"):
        return GOOD
    return BAD if state in ("failed", "unfinished") else WAIT


def _progress(view: JobView) -> list[Text]:
    parts = []
    if view.iteration is not None:
        of = f"/{view.total_iterations}" if view.total_iterations else ""
        parts.append(f"iteration {view.iteration}{of}" + (f" (epoch {view.epoch})" if view.epoch is not None else ""))
    if view.loss is not None:
        parts.append(f"loss {view.loss:.4g}")
    if view.accuracy is not None:
        parts.append(f"test accuracy {percent(view.accuracy)}")
    if view.perplexity is not None:
        parts.append(f"perplexity {view.perplexity:.2f}")
    if view.eta_seconds is not None and not view.ended:
        parts.append(f"{clock(view.eta_seconds)} left")
    return [Text(part) for part in parts]


def _times(view: JobView) -> list[Text]:
    parts = [f"{seconds(view.iteration_seconds)}/iteration"] if view.iteration_seconds is not None else []
    for word, value in (
        ("predicted", view.predicted_iteration_seconds),
        ("limit", view.limit_iteration_seconds),
        ("untouched", view.untouched_iteration_seconds),
    ):
        if value is not None:
            parts.append(f"{word} {seconds(value)}")
    if view.saved_seconds:
        parts.append(saved(view.saved_seconds))
    return [Text(part) for part in parts]


def _below(view: JobView, note: str) -> list[Text]:
    texts = [Text(view.stall, style=BAD)] if view.stall else []
    texts += [Text(view.gang, style=WAIT)] if view.gang else []
    texts += [Text(f"decision: {view.reason}")] if view.reason else []
    if view.problem:
        texts.append(Text(f"refused: {view.problem}", style=BAD))
    if view.message:
        texts.append(Text(view.message, style=BAD if view.state.lower() == "failed" else ""))
    texts += [Text(each.message, style=WAIT) for each in view.advice if each.condition == REPLACEMENT_ADVISED]
    return texts + ([Text(note, style="dim")] if note else [])


def _packed(parts: Sequence[Text], width: int) -> list[Text]:
    """Return the parts on as few lines as possible; no part is broken."""
    found: list[Text] = []
    for part in parts:
        if found and found[-1].cell_len + len(BETWEEN) + part.cell_len <= width:
            found[-1].append(BETWEEN).append_text(part)
        else:
            found.append(part.copy())
    return found


def _table(ranks: Sequence[RankView], width: int) -> Table:
    """Return the table of ranks; on a narrow terminal only names of groups and nodes are cut."""
    table = _grid(width)
    table.add_column("rank", justify="right", no_wrap=True)
    places = [name for name in PLACES if any(getattr(rank, name) for rank in ranks)]
    for name in places:
        table.add_column(name)
    for name in NUMBERS:
        table.add_column(name, justify="right", no_wrap=True)
    for rank in ranks:
        cells: list[RenderableType] = [_Name(PLACES[name](rank)) for name in places]
        cells += [_cell(rank, name, cell(rank)) for name, cell in NUMBERS.items()]
        table.add_row(str(rank.rank), *cells, style=STRAGGLER if rank.straggler else "")
    return table


def _grid(width: int) -> Table:
    return Table(box=None, padding=(0, 2 if width >= ROOMY else 1, 0, 0), header_style="dim")


@dataclass(frozen=True)
class _Name:
    """A name that is cut on a narrow terminal: first its domain, then its begin, since names differ at the end."""

    text: str

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(6, len(self.text)), len(self.text))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(cut(self.text, options.max_width), no_wrap=True)


def cut(name: str, width: int) -> str:
    """Return a name cut to `width` columns: the host, or the end of it."""
    if len(name) <= width:
        return name
    host = name.partition(".")[0]
    return host if len(host) <= width else "…" + host[len(host) - width + 1 :]


def _cell(rank: RankView, name: str, text: str) -> Text:
    waits, computes = rank.wait_seconds or 0.0, rank.compute_seconds or 0.0
    colour = WAIT if name == "wait" and waits > MUCH * (waits + computes) else COLOURED.get(name, "")
    return Text(text, style="" if rank.straggler or text == ABSENT else colour)


# -- all jobs -------------------------------------------------------------------------------------------------


def overview(views: Sequence[JobView], width: int, namespaces: bool, empty_text: str, note: str = "") -> RenderableType:
    """Return one line per job; empty_text: shown where there is none."""
    notes = [Text(text, style="dim") for text in (empty_text if not views else "", note) if text]
    if not views:
        return Group(*notes)
    optional = {"namespace": namespaces, "policy": any(view.policy for view in views)}
    columns = [name for name in FACTS if optional.get(name, True)]
    table = _grid(width)
    for name in columns:
        justify: JustifyMethod = "right" if name in ("ranks", "iteration", "saved") else "left"
        table.add_column(name, justify=justify, no_wrap=name not in ("namespace", "name", "policy"))
    for view in sorted(views, key=lambda view: (view.namespace or "", view.name)):
        table.add_row(*(FACTS[name](view) for name in columns))
    return Group(table, *notes)


def _slowest(view: JobView) -> Text:
    found = slowest((rank.rank, rank.slowdown) for rank in view.ranks)
    if found is None:
        return Text(ABSENT)
    number, chi = found
    straggles = any(rank.straggler for rank in view.ranks if rank.rank == number)
    return Text(f"rank {number} ({slowdown_text(chi)})", style=STRAGGLER if straggles else "")


FACTS: dict[str, Callable[[JobView], RenderableType]] = {
    "namespace": lambda view: _Name(view.namespace or ABSENT),
    "name": lambda view: _Name(view.name),
    "state": lambda view: Text(view.state or "new", style=_style(view)),
    "ranks": lambda view: str(view.rank_count or ABSENT),
    "iteration": lambda view: seconds(view.iteration_seconds),
    "slowest": _slowest,
    "strategy": lambda view: view.strategy or ABSENT,
    "policy": lambda view: _Name(view.policy or ABSENT),
    "saved": lambda view: duration(view.saved_seconds) if view.saved_seconds else ABSENT,
}
