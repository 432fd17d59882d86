"""Writes report.html: template, styles, scripts and numbers in one file."""

import html
import json
import os
from importlib.resources import files
from pathlib import Path
from typing import Any

from heterotp_cli.follow import History
from heterotp_cli.page.content import content


def write_page(history: History, report: dict[str, Any], target: Path) -> None:
    """Write the page of a run atomically: a reader sees the old one or the new one."""
    temporary = target.with_name(target.name + f".{os.getpid()}.tmp")
    temporary.write_text(page(history, report), encoding="utf-8")
    temporary.replace(target)


def page(history: History, report: dict[str, Any]) -> str:
    """Return the page of a run that has ended as HTML, which asks no server."""
    return _page(content(history, report), "'none'")


def live_page(document: dict[str, Any]) -> str:
    """Return the page that asks its server for news; document: as the server's, all of it."""
    return _page(document, "'self'")


def _page(document: dict[str, Any], connects: str) -> str:
    parts = {
        "@TITLE@": html.escape(str(document.get("job"))),
        "@CONNECTS@": connects,
        "@STYLE@": _part("uplot/uPlot.min.css") + _part("page.css"),
        "@LICENCE@": _part("uplot/LICENSE").replace("--", "- -"),
        "@UPLOT@": _part("uplot/uPlot.iife.min.js"),
        "@SCRIPT@": _part("page.js") + _part("live.js"),
        "@DATA@": script_safe(document),  # last: nothing in it is replaced
    }
    text = _part("page.html")
    for name, part in parts.items():
        text = text.replace(name, part, 1)
    return text


def script_safe(document: dict[str, Any]) -> str:
    """Return JSON that cannot end the script element around it, whatever its texts hold."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _part(name: str) -> str:
    return (files("heterotp_cli.page") / name).read_text(encoding="utf-8")
