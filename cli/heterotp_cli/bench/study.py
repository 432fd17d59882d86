"""Runs the accuracy study: one file per cell, whole or absent, so that it is interrupted and resumed at will."""

import json
import multiprocessing
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heterotp_cli.bench.machine import measured_on
from heterotp_cli.bench.study_cells import COMPARED, StudyCell, StudySize, cells
from heterotp_cli.workdir import read_json, write_json

CELLS, PARTS, GANG_RUNS = "cells", "parts", "gangs"
Result = dict[str, Any]


class Study:
    """The cells of one size, and their files in a folder."""

    def __init__(self, folder: Path, size: StudySize) -> None:
        self.folder, self.size = folder, size
        self.cells = cells(size)

    def result(self, cell: StudyCell) -> Result | None:
        """Return the result of a cell; None where it is not trained, or was trained otherwise."""
        found = read_json(self.folder / CELLS / f"{cell.file}.json")
        return found if found is not None and found.get("content") == cell.content(self.size) else None

    def keep(self, cell: StudyCell, result: Result) -> None:
        """Write the result of a cell."""
        path = self.folder / CELLS / f"{cell.file}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        names = {"name": cell.name, "seed": cell.seed, "size": self.size.name, "content": cell.content(self.size)}
        write_json(path, {**names, **result, "on": measured_on()})

    def results(self) -> dict[str, Result]:
        """Return the results so far by `trial/NAME/SEED`."""
        found = {f"trial/{cell.name}/{cell.seed}": self.result(cell) for cell in self.cells}
        return {key: result for key, result in found.items() if result is not None}

    def train(self, cell: StudyCell) -> Result:
        """Train one cell, from where it was stopped."""
        if cell.is_gang:
            from heterotp_cli.bench.study_gang import train_gang

            workdir = self.folder / GANG_RUNS / cell.file
            return train_gang(cell, self.size, workdir, compare=cell.name == f"gang {COMPARED}")
        from heterotp_cli.bench.study_training import train_cell

        return train_cell(cell, self.size, self.folder / PARTS / f"{cell.file}.safetensors")


def seconds_left(left: Sequence[StudyCell], done: Sequence[tuple[StudyCell, float]], workers: int) -> float | None:
    """Return how long the cells that are left will take; None before one of their kind has ended.

    done: cells with their seconds. One process trains one cell, gangs take the whole machine.
    """
    seconds = 0.0
    for is_gang, beside in ((False, workers), (True, 1)):
        count = sum(cell.is_gang == is_gang for cell in left)
        known = [each for cell, each in done if cell.is_gang == is_gang]
        if count and not known:
            return None
        seconds += count * statistics.fmean(known) / beside if count else 0.0
    return seconds


def run(study: Study, chosen: Sequence[StudyCell], workers: int, ended: Callable[[StudyCell, Result], None]) -> None:
    """Train the cells that have no result: one per worker at a time, then the gangs one by one."""
    left = [cell for cell in chosen if study.result(cell) is None]
    for cell, result in _trained(study, [cell for cell in left if not cell.is_gang], workers):
        study.keep(cell, result)
        ended(cell, result)
    for cell in left:
        if cell.is_gang:
            result = study.train(cell)
            study.keep(cell, result)
            ended(cell, result)


def _trained(study: Study, left: Sequence[StudyCell], workers: int) -> Iterator[tuple[StudyCell, Result]]:
    """Yield each cell with its result as soon as it has one."""
    if not left:
        return
    with _pool(min(workers, len(left))) as pool:
        pending: dict[Future[Result], StudyCell] = {pool.submit(study.train, cell): cell for cell in left}
        for done in as_completed(pending):
            yield pending[done], done.result()


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Give worker processes, which end at once where the caller fails or is interrupted: cells keep their epochs."""
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    pool.shutdown()


def stored(folder: Path) -> list[Result]:
    """Return all results in a folder, whatever their size."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted((folder / CELLS).glob("*.json"))]
