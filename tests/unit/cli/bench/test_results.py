"""The page of results: rebuilt from raw data, and equal to the one in the documentation."""

import csv
from pathlib import Path

from click.testing import CliRunner
from heterotp_cli.bench.results import SHORT, WHOLE, figures_in, write
from heterotp_cli.bench.scenarios import FIGURES
from heterotp_cli.bench.store import Store
from heterotp_cli.bench.study import Study
from heterotp_cli.bench.study_cells import SIZES
from heterotp_cli.bench_command import command
from support.paper_results import cpu_times, paper_times

ROOT = Path(__file__).resolve().parents[4]
RESULTS = ROOT / "docs" / "results"


def stored(folder, results, figures):
    store = Store(folder)
    for key, each in results.items():
        store.add(key, **each)
    for name in figures:
        store.add(f"figure/{name}")
    store.add("spent", seconds=120.0, date="2030-01-02", cores=2, torch="9.9", python="3.11", heterotp="0.2.0")


def test_a_page_is_made_of_raw_data_alone(tmp_path):
    stored(tmp_path / "raw" / "full", paper_times(), ["table1", "several"])
    stored(tmp_path / "raw" / "quick", cpu_times(), ["table1", "real-cpu"])
    study = Study(tmp_path / "raw" / "accuracy-small", SIZES["small"])
    study.keep(study.cells[0], {"accuracy": 0.9, "loss": 0.3, "seconds": 5.0})
    found = CliRunner().invoke(command, ["results", str(tmp_path / "raw"), "--output", str(tmp_path / "out")])
    assert found.exit_code == 0, found.output
    text = (tmp_path / "out" / SHORT).read_text()
    assert "2030-01-02" in text and "torch 9.9" in text and "on 2 cores" in text
    assert "the sweet spot is at lambda 3" in text and "Every strategy on real CPU ranks" in text
    assert "| baseline |" not in text and "1 trainings" in text
    assert (tmp_path / "out" / WHOLE).read_text().count("data:image/png;base64,") > 3
    rows = list(csv.reader((tmp_path / "out" / "table1.csv").read_text().splitlines()))
    assert len(rows) > 16  # the full size's, not the quick one's
    before = (tmp_path / "out" / "table1.csv").read_bytes()
    write(tmp_path / "raw", tmp_path / "out")
    assert ((tmp_path / "out" / "table1.csv").read_bytes(), (tmp_path / "out" / SHORT).read_text()) == (before, text)


def test_every_row_of_the_paper_has_a_result_or_a_reason(tmp_path):
    figures, told = figures_in(tmp_path)
    assert [figure.name for figure in figures] == list(FIGURES) and not told
    for figure in figures:
        for claim in figure.claims:
            assert claim.verdict == "not measured" and ("time" in claim.why or "lack of them" in claim.why)


def test_the_results_of_the_documentation_are_those_of_the_raw_data(tmp_path):
    write(RESULTS / "raw", tmp_path)
    made = {path.name: path.read_text() for path in tmp_path.iterdir() if path.name != WHOLE}
    kept = {path.name: path.read_text() for path in RESULTS.iterdir() if path.is_file() and path.name != WHOLE}
    assert made == kept, "run: heterotp bench results docs/results/raw --output docs/results"
