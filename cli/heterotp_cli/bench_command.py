"""`heterotp bench`: repeatable measurements."""

import os
import time
from pathlib import Path

import click

from heterotp_cli.bench.needed import require
from heterotp_cli.bench.scenarios import FIGURES, FULL, QUICK, GangRun, Size, Step, Trial
from heterotp_cli.bench.statistics import repeat_key
from heterotp_cli.bench_accuracy_command import command as accuracy
from heterotp_cli.errors import BadInput
from heterotp_cli.gpus import visible

FOLDER = Path("paper")
LEVELS = ("emulated", "cpu", "gpu")


@click.group("bench")
def command() -> None:
    """Repeat measurements."""


@command.command("paper")
@click.option("--figure", "chosen", multiple=True, metavar="NAME", help=f"One of {', '.join(FIGURES)}; all by default.")
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    default=LEVELS[0],
    show_default=True,
    help="Kind of evidence: emulated accelerators, real CPU ranks slowed by real work, or real GPUs.",
)
@click.option("--quick", is_flag=True, help="Fewer settings and shorter trainings: at most 5 minutes on 2 cores.")
@click.option(
    "--resume/--fresh", default=True, help="Go on where a bench stopped (default), or measure these figures again."
)
@click.option(
    "--policy", "policies", multiple=True, type=click.Path(path_type=Path), help="A BalancingPolicy: a further row."
)
@click.option(
    "--model",
    "models",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Sizes and times of a model: more rows.",
)
@click.option("--output", type=click.Path(path_type=Path), default=FOLDER, show_default=True, help="Where to write.")
def paper(
    chosen: tuple[str, ...],
    level: str,
    quick: bool,
    resume: bool,
    policies: tuple[Path, ...],
    models: tuple[Path, ...],
    output: Path,
) -> None:
    """Redraw the paper's figures beside the paper's numbers: CSV, PNG and one page with a verdict per claim.

    Time is measured on emulated accelerators at the paper's pace or on real ranks, accuracy in real trainings (with
    level emulated). A stopped bench continues where it was: results in the output directory are not measured again,
    and figures and levels that were measured there before stay on the page.
    """
    if level == "gpu":
        require_gpus()
    figures = check_figures(chosen)
    require("torch", "heterotp_trainer", "matplotlib", "jinja2", "scipy")
    from heterotp_cli.bench.own_rows import with_own_rows

    size = with_own_rows(QUICK if quick else FULL, policies, models)
    measure(figures, size, "quick" if quick else "full", output, level, resume)


command.add_command(accuracy)


@command.command("results")
@click.argument("raw", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--output", type=click.Path(path_type=Path), required=True, help="Where to write the page and its tables."
)
def results(raw: Path, output: Path) -> None:
    """Write the page of all results again, from raw data alone.

    RAW has the folders that the benches write: full, quick, and accuracy-SIZE. Nothing is measured.
    """
    require("torch", "heterotp_trainer", "matplotlib", "jinja2", "scipy")
    from heterotp_cli.bench.results import write

    click.echo(write(raw, output))


def require_gpus() -> int:
    """Return the number of GPUs; raise BadInput where there are too few for a gang."""
    from heterotp_cli.bench.cpu_figures import LEAST_GPUS

    gpus = len(visible(os.environ) or ())
    if gpus < LEAST_GPUS:
        raise BadInput(
            f"--level: 'gpu': needs at least {LEAST_GPUS} GPUs, one a rank, and this machine has {gpus}: take emulated "
            "or cpu"
        )
    return gpus


def check_figures(chosen: tuple[str, ...]) -> tuple[str, ...]:
    """Return the figures to draw; raise BadInput for an unknown name."""
    unknown = [name for name in chosen if name not in FIGURES]
    if unknown:
        raise BadInput(f"--figure: '{unknown[0]}': must be one of {', '.join(FIGURES)}")
    return chosen or FIGURES


def measure(
    figures: tuple[str, ...], size: Size, mode: str, output: Path, level: str = LEVELS[0], resume: bool = True
) -> None:
    """Measure what the output directory does not hold yet, then write the page."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from heterotp_cli.bench import page
    from heterotp_cli.bench.drawn import about, drawn
    from heterotp_cli.bench.machine import measured_on
    from heterotp_cli.bench.store import Store

    started = time.monotonic()
    try:
        store = Store(output / mode)
    except OSError as error:
        raise BadInput(f"{output}: --output: cannot be written: {error.strerror}: name another directory") from None
    drawn_before = tuple(name for name in FIGURES if name in figures or f"figure/{name}" in store)
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:.0f}/{task.total:.0f}"))
    figures, asked = drawn_before, figures
    with Progress(
        *columns, TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), console=console
    ) as progress:
        Bench(store, size, figures if resume else asked, progress, level, fresh=not resume).run()
    for name in figures:
        store.add(f"figure/{name}")
    seconds = (store.get("spent") or {"seconds": 0.0})["seconds"] + time.monotonic() - started
    store.add("spent", seconds=seconds, **measured_on())
    path = page.write(output / mode, drawn(figures, store.results, size), about(mode, store.results["spent"]))
    console.print(f"{path}", highlight=False, soft_wrap=True)


class Bench:
    """Runs the measurements of a page, and stores each result at once."""

    def __init__(  # type: ignore[no-untyped-def]
        self, store, size: Size, figures: tuple[str, ...], progress, level: str = LEVELS[0], *, fresh: bool = False
    ) -> None:
        self._store, self._size, self._figures, self._progress = store, size, figures, progress
        self._level, self._fresh = level, fresh

    def run(self) -> None:
        """Run all timing gangs, then all trainings, which use the decisions of the gangs."""
        self._time()
        if self._level == "emulated":
            self._accuracy()

    def _time(self) -> None:
        from heterotp_cli.bench.live import run_gang

        what = f"time ({self._level})"
        wanted = [(repeat, run) for repeat in range(self._size.repeats) for run in self._runs()]
        left = [(repeat, run.without(self._done(run, repeat))) for repeat, run in wanted]
        total = sum(len(run.steps) for _, run in wanted)
        task = self._progress.add_task(what, total=total)
        self._progress.advance(task, total - sum(len(run.steps) for _, run in left))
        for repeat, run in left:

            def keep(step: Step, result: dict[str, object], run: GangRun = run, repeat: int = repeat) -> None:
                self._store.add(time_key(run, step, repeat), **result, content=run.content(step, self._size))
                self._progress.update(task, advance=1, description=f"{what}: {step.name}, run {repeat + 1}")

            if run.steps:
                run_gang(run, self._size, keep)
        self._progress.update(task, description=what)

    def _runs(self) -> list[GangRun]:
        """Return the gangs of this level that the figures need."""
        from heterotp_cli.bench.real_cpu import cpu_runs, gpu_runs
        from heterotp_cli.bench.scenarios import gang_runs, needed

        if self._level == "emulated":
            return gang_runs(self._size, self._figures)
        runs = cpu_runs(self._size) if self._level == "cpu" else gpu_runs(self._size, require_gpus())
        return needed(runs, self._figures)

    def _done(self, run: GangRun, repeat: int) -> set[str]:
        """Return the names of the steps that are measured already."""
        return set() if self._fresh else {step.name for step in run.steps if self._measured(run, step, repeat)}

    def _measured(self, run: GangRun, step: Step, repeat: int) -> bool:
        found = self._store.get(time_key(run, step, repeat))
        return found is not None and found.get("content") == run.content(step, self._size)

    def _accuracy(self) -> None:
        from heterotp_cli.bench.trials import run_trials, trials

        wanted = trials(self._size, self._figures, self._store.results)
        task = self._progress.add_task("accuracy (real training)", total=len(wanted))
        twins: dict[str, list[Trial]] = {}
        for trial in wanted:
            twins.setdefault(trial.content, []).append(trial)
        known = {content: found for content in twins if (found := self._store.get(f"content/{content}")) is not None}
        known = {} if self._fresh else known

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


def time_key(run: GangRun, step: Step, repeat: int = 0) -> str:
    """Return the key of a step's result in one of its runs."""
    return repeat_key(f"time/{run.name}/{step.name}", repeat)
