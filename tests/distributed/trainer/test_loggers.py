"""Jobs with spec.reporting, by real ranks: files that TensorBoard reads, and one line where a library is missing."""

import sys

from heterotp_api.names import EXIT_BAD_INPUT
from support.launched import spec
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

WITHOUT_MLFLOW = """
import sys
sys.modules["mlflow"] = None
from heterotp import run_rank
run_rank(lambda session: None)
"""


def test_rank_zero_writes_event_files_beside_its_history(launch):
    body = {**spec(2, iterations=30), "reporting": {"tensorboard": {}}}
    run = launch(body)
    assert run.wait() == 0, run.text()
    (folder,) = (run.workdir / "tensorboard").iterdir()
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    history = run.history()
    written = {each.step: each.value for each in events.Scalars("loss/train")}
    assert sorted(written) == [entry["iteration"] for entry in history] == list(range(1, 31))
    assert abs(written[30] - history[-1]["loss"]) < 1e-6
    assert events.Scalars("accuracy/test") and events.Scalars("slowdown/rank_1")


def test_a_missing_library_is_one_line_and_bad_input(launch):
    body = {**spec(2), "reporting": {"mlflow": {}}}
    run = launch(body, command=[sys.executable, "-c", WITHOUT_MLFLOW])
    assert run.wait() == EXIT_BAD_INPUT, run.text()
    line = "error: rank 0: spec.reporting.mlflow: the package mlflow cannot be used: pip install 'heterotp[mlflow]'"
    assert line in run.text() and "Traceback" not in run.text(), run.text()
