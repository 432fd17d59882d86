"""`heterotp bench`: repeatable measurements."""

import importlib.util
import time
from pathlib import Path

import click

from heterotp_cli.bench.scenarios import FIGURES, FULL, QUICK, GangRun, Size, Step, Trial
from heterotp_cli.errors import BadInput, Failed

FOLDER = Path("paper")


@click.group("bench")
def command() -> None:
    """Repeat measurements."""


@command.command("paper")
@click.option("--figure", "chosen", multiple=True, metavar="NAME", help=f"One of {', '.join(FIGURES)}; all by default.")
@click.option("--quick", is_flag=True, help="Fewer settings and shorter trainings: at most 5 minutes on 2 cores.")
@click.option("--output", type=click.Path(path_type=Path), default=FOLDER, show_default=True, help="Where to write.")
def paper(chosen: tuple[str, ...], quick: bool, output: Path) -> None:
    """Redraw the paper's figures beside the paper's numbers: CSV, PNG and one page with a verdict per claim.

    Time is measured on emulated accelerators at the paper's pace, accuracy in real trainings. A stopped bench
    continues where it was: results in the output directory are not measured again, and figures that were drawn
    there before stay on the page.
    """
    figures = check_figures(chosen)
    for module in ("torch", "heterotp_trainer", "matplotlib", "jinja2", "scipy"):
        if importlib.util.find_spec(module) is None:
            raise Failed(f"{module} is not installed: pip install 'heterotp[trainer,cli]'")
    measure(figures, QUICK if quick else FULL, "quick" if quick else "full", output)


def check_figures(chosen: tuple[str, ...]) -> tuple[str, ...]:
    """Return the figures to draw; raise BadInput for an unknown name."""
    unknown = [name for name in chosen if name not in FIGURES]
    if unknown:
        raise BadInput(f"--figure: '{unknown[0]}': must be one of {', '.join(FIGURES)}")
    return chosen or FIGURES


def measure(figures: tuple[str, ...], size: Size, mode: str, output: Path) -> None:
    """Measure what the output directory does not hold yet, then write the page."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from heterotp_cli.bench import page
    from heterotp_cli.bench.drawn import about, drawn
    from heterotp_cli.bench.store import Store

    started = time.monotonic()
    try:
        store = Store(output / mode)
    except OSError as error:
        raise BadInput(f"{output}: --output: cannot be written: {error.strerror}: name another directory") from None
    figures = tuple(name for name in FIGURES if name in figures or f"figure/{name}" in store)
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:.0f}/{task.total:.0f}"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        Bench(store, size, figures, progress).run()
    for name in figures:
        store.add(f"figure/{name}")
    seconds = (store.get("spent") or {"seconds": 0.0})["seconds"] + time.monotonic() - started
    store.add("spent", seconds=seconds)
    path = page.write(output / mode, drawn(figures, store.results, size), about(mode, seconds))
    console.print(f"{path}", highlight=False, soft_wrap=True)


class Bench:
    """Runs the measurements of a page, and stores each result at once."""

    def __init__(self, store, size: Size, figures: tuple[str, ...], progress) -> None:  # type: ignore[no-untyped-def]
        self._store, self._size, self._figures, self._progress = store, size, figures, progress

    def run(self) -> None:
        """Run all timing gangs, then all trainings, which use the decisions of the gangs."""
        self._time()
        self._accuracy()

    def _time(self) -> None:
        from heterotp_cli.bench.live import run_gang
        from heterotp_cli.bench.scenarios import gang_runs

        runs = gang_runs(self._size, self._figures)
        left = [run.without({step.name for step in run.steps if self._measured(run, step)}) for run in runs]
        task = self._progress.add_task("time (emulated)", total=sum(len(run.steps) for run in runs))
        self._progress.advance(task, sum(len(run.steps) for run in runs) - sum(len(run.steps) for run in left))
        for run in left:

            def keep(step: Step, result: dict[str, object], run: GangRun = run) -> None:
                self._store.add(time_key(run, step), **result, content=run.content(step, self._size))
                self._progress.update(task, advance=1, description=f"time (emulated): {step.name}")

            if run.steps:
                run_gang(run, self._size, keep)
        self._progress.update(task, description="time (emulated)")

    def _measured(self, run: GangRun, step: Step) -> bool:
        found = self._store.get(time_key(run, step))
        return found is not None and found.get("content") == run.content(step, self._size)

    def _accuracy(self) -> None:
        from heterotp_cli.bench.trials import run_trials, trials

        wanted = trials(self._size, self._figures, self._store.results)
        task = self._progress.add_task("accuracy (real training)", total=len(wanted))
        twins: dict[str, list[Trial]] = {}
        for trial in wanted:
            twins.setdefault(trial.content, []).append(trial)
        known = {content: found for content in twins if (found := self._store.get(f"content/{content}")) is not None}

        def keep(trial: Trial, result: dict[str, float]) -> None:
            self._store.add(f"content/{trial.content}", **result)
            self._share(twins[trial.content], result, task)

        for content, found in known.items():
            self._share(twins[content], {key: found[key] for key in ("loss", "accuracy")}, task)
        run_trials([same[0] for content, same in twins.items() if content not in known], keep)

    def _share(self, same: list[Trial], result: dict[str, float], task: int) -> None:
        """Store one result for all trials that train the same."""
        for trial in same:
            self._store.results[f"trial/{trial.name}/{trial.seed}"] = {**result}
        self._progress.advance(task, len(same))


def time_key(run: GangRun, step: Step) -> str:
    """Return the key of a step's result."""
    return f"time/{run.name}/{step.name}"
