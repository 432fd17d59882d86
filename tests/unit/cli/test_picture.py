"""What report.png shows of times, migration and the cost calibration."""

import json

import matplotlib
import pytest
from heterotp_api.load import parse_object
from heterotp_api.ranks import rank_table
from heterotp_cli import picture, run_command, workdir
from heterotp_cli.follow import History
from heterotp_cli.picture import class_title, decisions, draw, largest_classes, link_lines, measured_ranks
from heterotp_cli.report import completed
from matplotlib.figure import Figure
from support.manifest_table import TABLE, manifest

matplotlib.use("Agg")

PLACES = rank_table(parse_object(manifest(TABLE["good"][0])).spec)
PHASES = {"compute": 0.05, "matmul": 0.04, "unit": 0.005, "fixed": 0.005, "wait": 0.04, "data": 0, "control": 0}


def history(plans, **ranks):
    entries = [
        {"attempt": 1, "iteration": i, "iterationSeconds": 0.1, "measured": True, "loss": 1.0, "accuracy": None}
        | {"decisionId": plan, "ranks": [PHASES | ranks] * 4}
        for i, plan in enumerate(plans, 1)
    ]
    return History(tuple(range(1, len(entries) + 1)), tuple(entries))


def test_a_history_that_an_earlier_version_began_has_the_same_decisions():
    log = history([1, 1, 2, 2, 3])
    early = [{**{k: v for k, v in e.items() if k != "decisionId"}, "plan": e["decisionId"]} for e in log.entries[:3]]
    mixed = History(log.iterations, (*early, *log.entries[3:]))
    assert decisions(mixed) == decisions(log) == [(3, 2), (5, 3)]


def curve(*seconds):
    return {"columns": [0.0, 16.0, 32.0][: len(seconds)], "seconds": list(seconds)}


def linears(name, calls=2, outputs=(8, 8, 0)):
    return {
        "name": name,
        "parallel": "column",
        "columns": [32] * 3,
        "outputs": list(outputs),
        "rows": 10,
        "calls": calls,
    }


def calibration(**changes):
    """Rank 0 is slow, rank 1 fast, rank 2 has no work."""
    line = {"fixed": 0.001, "slope": 1e-6}
    slow, fast, none = curve(0, 0.02, 0.04), curve(0, 0.01, 0.02), {"columns": [0.0, 1.0], "seconds": [0.0, 0.0]}
    base = {
        "classes": [linears("blocks.0.attention.qkv"), linears("blocks.0.mlp.fc1", calls=1)],
        "curves": [[slow, slow], [fast, fast], [none, none]],
        "grains": [16] * 3,
        "link": {"broadcast": line, "reduce": line, "piece": {"fixed": 0.0, "slope": 0.0}},
        "item_bytes": 4,
        "allocation": 0.0,
        "extraction": line,
    }
    return {**base, **changes}


@pytest.fixture
def figures(monkeypatch):
    """Every figure that is drawn, instead of a file."""
    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *args, **kwargs: drawn.append(self))
    return drawn


def shown(figures, with_calibration, plans=(1,) * 20, **ranks):
    log = history(plans, **ranks)
    draw(log, completed(None, "failed", "demo", 1, None, log, PLACES), None, with_calibration)
    return figures[-1]


def titles(figure):
    return [axes.get_title(loc="left") for axes in figure.axes]


@pytest.mark.parametrize(
    ("plans", "made"),
    [
        pytest.param([1, 1, 2, 2, 3], [(3, 2), (5, 3)], id="where-it-changes"),
        pytest.param([1, 1, 1], [], id="the-first-is-none"),
        pytest.param([3, 3, 1, 1], [(3, 1)], id="counted-anew-after-a-resume"),
        pytest.param([None, None], [], id="a-history-of-before"),
        pytest.param([None, 1], [(2, 1)], id="resumed-from-a-history-of-before"),
        pytest.param([], [], id="empty"),
    ],
)
def test_decisions_are_where_the_plan_changes(plans, made):
    assert decisions(history(plans)) == made


def test_decisions_are_marked_by_number(figures):
    first, strip = shown(figures, None, [1] * 10 + [2] * 10 + [3] * 10).axes[:2]
    assert [text.get_text() for text in strip.texts] == ["2", "3"]
    assert [line[0][0] for line in strip.collections[0].get_segments()] == [11, 21]
    assert [line.get_xdata()[0] for line in first.lines if line.get_linestyle() == ":"] == [11, 21]
    assert [text.get_text() for text in first.get_legend().get_texts()] == ["iteration"]


def test_decisions_of_the_warm_up_are_not_marked(figures):
    log = history([0, 1, 1, 2, 2, 2])
    for entry in log.entries[:2]:
        entry["measured"] = False
    draw(log, completed(None, "failed", "demo", 1, None, log, PLACES), None)
    assert [text.get_text() for text in figures[0].axes[1].texts] == ["2"]


def test_a_straggler_of_a_few_iterations_is_not_cut_off(figures):
    log = history([1] * 100)
    for entry in log.entries[40:45]:
        entry["iterationSeconds"] = 0.9
    draw(log, completed(None, "failed", "demo", 1, None, log, PLACES), None)
    assert figures[0].axes[0].get_ylim()[1] > 900


def test_migration_is_part_of_the_stacks(figures):
    assert list(picture.COLOURS)[-1] == "wait"  # what a rank does first, waiting on top
    stack = shown(figures, None, migrate=0.01).axes[3].collections
    assert [part.get_label() for part in stack] == list(picture.COLOURS)
    assert "migrate" in picture.COLOURS


def test_a_history_without_migration_is_drawn(figures):
    assert len(shown(figures, None).axes) == 7


def test_panels_of_the_calibration_are_drawn_if_it_was_measured(figures):
    without, with_one = titles(shown(figures, None)), titles(shown(figures, calibration()))
    assert with_one == [*without, "qkv, 2 calls an iteration", "fc1, 1 call an iteration", "one transfer"]
    panel = figures[-1].axes[len(without)]
    assert [line.get_label() for line in panel.lines] == ["fastest: rank 1", "slowest: rank 0"]
    assert [list(line.get_ydata()) for line in panel.lines] == [[0, 10, 20], [0, 20, 40]]


@pytest.mark.parametrize(
    "document", [{}, {"classes": []}, calibration(link={}), calibration(curves=[[curve(0, 0), curve(0, 0)]])]
)
def test_a_file_that_is_no_calibration_is_left_out(figures, document):
    assert titles(shown(figures, document)) == titles(shown(figures, None))


def test_ranks_of_the_calibration_are_sorted_by_speed_without_idle_ones():
    assert measured_ranks(calibration()) == [1, 0]


def test_the_largest_classes_are_chosen_in_their_order():
    classes = [linears("a", calls=1), linears("b", calls=3), linears("c", calls=2)]
    rows = [[curve(0, 0.02, 0.04)] * 3]
    assert largest_classes(calibration(classes=classes, curves=rows), 2) == [1, 2]
    assert largest_classes(calibration(classes=classes, curves=rows), 4) == [0, 1, 2]


def test_link_lines_reach_to_the_largest_matrix():
    lines = link_lines(calibration())
    assert lines["piece"] == ([0.0, 320.0], [0.0, 0.0])
    assert lines["reduce"] == ([0.0, 320.0], pytest.approx([0.001, 0.00132]))


def test_a_class_is_named_by_the_end_of_its_name():
    assert class_title(linears("blocks.0.mlp.fc1")) == "fc1, 2 calls an iteration"
    assert class_title(linears("head", calls=1)) == "head, 1 call an iteration"


def test_a_run_directory_with_a_calibration_gets_its_picture(tmp_path):
    log = history([1] * 12)
    (tmp_path / "history.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in log.entries))
    report = completed(None, "failed", "demo", 1, None, log, PLACES)
    sizes = []
    for document in ("", "{", json.dumps(calibration())):  # none, half-written, whole
        (tmp_path / "cost_calibration.json").write_text(document)
        run_command.draw_picture(report, tmp_path)
        sizes.append(int.from_bytes((tmp_path / "report.png").read_bytes()[20:24], "big"))
    assert sizes[0] == sizes[1] < sizes[2]  # pixels high


def test_a_run_that_starts_over_removes_the_calibration(tmp_path):
    (tmp_path / "cost_calibration.json").write_text("{}")
    workdir.prepare(tmp_path, "demo", 2, {})
    assert (tmp_path / "cost_calibration.json").exists()
    workdir.prepare(tmp_path, "demo", 1, {})
    assert not (tmp_path / "cost_calibration.json").exists()
