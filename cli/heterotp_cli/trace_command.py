"""`heterotp trace`: a trace of some iterations of a live run."""

import json
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from heterotp_cli.errors import BadInput, Failed

if TYPE_CHECKING:
    from heterotp_api.rank_trace import TraceRequest

    from heterotp_cli.verbs.local import LocalTarget

WAIT_SECONDS = 120.0


@click.command("trace")
@click.argument("run_dir")
@click.option("--rank", "ranks", multiple=True, type=click.IntRange(0), help="A rank; may be given several times.")
@click.option("--all", "everyone", is_flag=True, help="All ranks.")
@click.option("--steps", type=click.IntRange(1, 20), default=3, show_default=True, help="Number of iterations.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File; default: trace.json beside the ranks'.")
@click.option("--wait", type=click.FloatRange(1), default=WAIT_SECONDS, show_default=True, help="Seconds to wait.")
def command(run_dir: str, ranks: tuple[int, ...], everyone: bool, steps: int, output: Path | None, wait: float) -> None:
    """Trace iterations of the live run in RUN_DIR by torch.profiler, and merge the ranks' traces into one file.

    It opens in https://ui.perfetto.dev and in chrome://tracing: per rank what PyTorch did, our phases, and the
    decisions. The run goes on; its traced iterations are slower, and enter no statistic.
    """
    if everyone == bool(ranks):
        raise BadInput("--rank: give ranks, or --all" + (", not both" if ranks else ""))
    if output is not None and (output.is_dir() or not output.parent.is_dir()):
        raise BadInput(f"-o: '{output}': name a file in a directory that exists")
    from heterotp_api.rank_trace import TRACES, TraceRequest

    from heterotp_cli.verbs.local import open_run

    target = open_run(run_dir)
    assert target.place is not None
    chosen = None if everyone else sorted(set(ranks))
    request = TraceRequest(uid=secrets.token_hex(6), steps=steps, ranks=chosen)
    folder = target.place / TRACES / request.uid
    target.trace(request)
    try:
        file = _collected(target, request, folder, output or folder / "trace.json", wait)
    finally:
        with suppress(BadInput, Failed, OSError):  # the run may be gone
            target.end_trace(request.uid)
    click.echo(f"trace of {steps} iterations: {file}")


def _collected(target: "LocalTarget", request: "TraceRequest", folder: Path, file: Path, wait: float) -> Path:
    """Wait for the ranks, merge what they left, and return the file."""
    from heterotp_cli.traces.collect import await_ranks, read_rank
    from heterotp_cli.traces.merge import merged

    groups = target.groups()
    ranks = request.ranks if request.ranks is not None else sorted(groups)
    await_ranks(folder, ranks, lambda: target.look().ended, wait, time.monotonic, time.sleep)
    traced = [read_rank(folder, rank, groups[rank]) for rank in ranks]
    text = json.dumps(merged(traced, target.decisions()), separators=(",", ":"))
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failed(f"{file}: cannot be written: {error.strerror}") from None
    return file
