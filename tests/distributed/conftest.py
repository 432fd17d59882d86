"""Runs gangs of ranks, one process each, and returns their results to the tests."""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.launched import Launched
from support.patience import COMPUTING_SECONDS
from support.places import RANK_SCRIPTS
from support.rank_server import Forked, rank_server

POLL_SECONDS = 0.05

Gang = Callable[[str, int], list[dict[str, Any]]]


def _start(script: str, rank: int, ranks: int, folder: Path) -> Forked:
    arguments = [str(RANK_SCRIPTS / script), str(rank), str(ranks), str(folder)]
    with (folder / f"rank{rank}.log").open("wb") as log:
        return rank_server().start(arguments, os.environ, log.fileno())


def _wait(processes: list[Forked]) -> str:
    """Return "" when all ranks ended well, else what went wrong; ranks that still run are killed."""
    deadline = time.monotonic() + COMPUTING_SECONDS
    try:
        while True:
            codes = [process.poll() for process in processes]
            failed = {rank: code for rank, code in enumerate(codes) if code}
            if failed:
                return f"exit codes by rank: {failed}"
            if None not in codes:
                return ""
            if time.monotonic() > deadline:
                return f"not done after {COMPUTING_SECONDS} s: ranks {[r for r, c in enumerate(codes) if c is None]}"
            time.sleep(POLL_SECONDS)
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def gang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gang]:
    """Return run(script, ranks) -> one result per rank; every (script, ranks) runs once per test session."""
    done: dict[tuple[str, int], tuple[str, list[dict[str, Any]]]] = {}

    def run(script: str, ranks: int) -> list[dict[str, Any]]:
        if (script, ranks) not in done:
            folder = tmp_path_factory.mktemp(f"gang{ranks}")
            error = _wait([_start(script, rank, ranks, folder) for rank in range(ranks)])
            logs = "\n".join(f"[{log.stem}]\n{log.read_text()[-2000:]}" for log in sorted(folder.glob("*.log")))
            results = [] if error else [json.loads((folder / f"rank{r}.json").read_text()) for r in range(ranks)]
            done[script, ranks] = f"{error}\n{logs}" if error else "", results
        error, results = done[script, ranks]
        assert not error, error
        return results

    yield run


@pytest.fixture
def launch(tmp_path):
    """A function that starts a gang; its processes are killed after the test."""
    started = []

    def start(body, **options):
        started.append(Launched(tmp_path, body, **options))
        return started[-1]

    def in_folder(name, body, **options):
        """Start another gang in its own folder."""
        started.append(Launched(tmp_path / name, body, **options))
        return started[-1]

    start.workdir, start.in_folder = tmp_path, in_folder
    yield start
    for each in started:
        each.kill()
