"""Run all queries of a board on a Prometheus: panels, variables and annotations, resolved as Grafana does.

board = load_board(path)
window = Window(start, end, step=15, rate_interval="1m")
values = resolve_variables(board, url, window, namespace="team-a")
for query in board_queries(board, values, window):
    series = ask(query, url, window)
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

Json = dict[str, Any]
_LABEL_VALUES = re.compile(r"label_values\((?:(?P<series>.+),\s*)?(?P<label>\w+)\)")
_VARIABLE = re.compile(r"\$(?:\{(?P<braced>\w+)(?::\w+)?\}|(?P<bare>\w+))")


@dataclass(frozen=True)
class Window:
    """The time range of a board in unix seconds, its step in seconds, and the interval for rates."""

    start: float
    end: float
    step: int = 15
    rate_interval: str = "1m"

    def built_in(self) -> dict[str, str]:
        """Return Grafana's built-in variables."""
        seconds = max(1, round(self.end - self.start))
        return {
            "__rate_interval": self.rate_interval,
            "__interval": f"{self.step}s",
            "__interval_ms": str(self.step * 1000),
            "__range": f"{seconds}s",
            "__range_s": str(seconds),
            "__range_ms": str(seconds * 1000),
        }


@dataclass(frozen=True)
class Query:
    """One query of a board; `asker`: title of the panel or name of the annotation; `panel`: its id (0: none)."""

    asker: str
    panel: int
    kind: str  # the panel's type, or "annotation"
    ref: str
    expr: str
    legend: str
    instant: bool


def load_board(path: Path) -> Json:
    """Return the board of a file."""
    board: Json = json.loads(path.read_text(encoding="utf-8"))
    return board


def panels(board: Json) -> Iterator[Json]:
    """Yield every panel with queries, including those inside collapsed rows."""
    for panel in board["panels"]:
        if panel["type"] == "row":
            yield from panel.get("panels") or ()
        else:
            yield panel


def substitute(text: str, values: dict[str, str]) -> str:
    """Replace variables by their values; raises KeyError for a variable without a value."""
    return _VARIABLE.sub(lambda found: values[found["braced"] or found["bare"]], text)


def get(url: str, path: str, **parameters: Any) -> Any:
    """Return the data of one call to Prometheus' API; raises ValueError with the message of the API."""
    answer = requests.get(f"{url.rstrip('/')}/api/v1/{path}", params=parameters, timeout=60).json()
    if answer["status"] != "success":
        raise ValueError(f"{parameters}: {answer['error']}")
    return answer["data"]


def resolve_variables(board: Json, url: str, window: Window, **chosen: str) -> dict[str, str]:
    """Return the value of every variable: the chosen one, else all where offered, else the first option."""
    values = window.built_in()
    for variable in board["templating"]["list"]:
        name = variable["name"]
        values[name] = chosen[name] if name in chosen else _first_or_all(variable, url, window, values)
    return values


def _first_or_all(variable: Json, url: str, window: Window, values: dict[str, str]) -> str:
    if variable["type"] != "query":
        return str((variable.get("current") or {}).get("value") or variable.get("query") or "").split(",")[0]
    if variable.get("includeAll") and variable.get("allValue"):
        return str(variable["allValue"])
    options = variable_options(variable, url, window, values)
    if not options:
        raise ValueError(f"variable {variable['name']}: Prometheus has no value for it")
    return f"({'|'.join(map(escaped, options))})" if variable.get("multi") else options[0]


def escaped(option: str) -> str:
    """Return a value escaped as Grafana escapes it inside a regular expression in a string."""
    return re.sub(r"([\\^$*+?.()|\[\]{}])", r"\\\\\1", option)


def variable_options(variable: Json, url: str, window: Window, values: dict[str, str]) -> list[str]:
    """Return the options of a query variable."""
    query = variable["query"]
    text = query if isinstance(query, str) else query["query"]
    asked = _LABEL_VALUES.fullmatch(substitute(text, values))
    if asked is None:
        raise ValueError(f"variable {variable['name']}: '{text}' is no label_values(...)")
    matching = {"match[]": asked["series"]} if asked["series"] else {}
    options: list[str] = get(url, f"label/{asked['label']}/values", start=window.start, end=window.end, **matching)
    return options


def board_queries(board: Json, values: dict[str, str], window: Window) -> Iterator[Query]:
    """Yield every query of the board with its variables resolved."""
    values = {**values, **window.built_in()}
    for panel in panels(board):
        for target in panel.get("targets") or ():
            yield Query(
                asker=panel["title"],
                panel=panel["id"],
                kind=panel["type"],
                ref=target["refId"],
                expr=substitute(target["expr"], values),
                legend=target.get("legendFormat") or "",
                instant=bool(target.get("instant")),
            )
    for annotation in board["annotations"]["list"]:
        if expr := annotation.get("expr"):
            yield Query(annotation["name"], 0, "annotation", "Anno", substitute(expr, values), "", False)


def ask(query: Query, url: str, window: Window) -> list[Json]:
    """Return the resulting series: with `value` for an instant query, else with `values`."""
    if query.instant:
        answer = get(url, "query", query=query.expr, time=window.end)
    else:
        answer = get(url, "query_range", query=query.expr, start=window.start, end=window.end, step=window.step)
    found: list[Json] = answer["result"]
    return found
