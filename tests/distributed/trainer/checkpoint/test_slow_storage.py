"""Storage that is slower than the collectives' timeout delays a gang, and ends no rank."""

import re
import sys

from support.language_jobs import language, plain_loss, write_checkpoint, write_text
from support.launched import Launched, spec
from support.places import RANK_SCRIPTS

SLOW = [sys.executable, str(RANK_SCRIPTS / "slow_storage.py"), "5"]  # seconds
TIMEOUT_SECONDS, FIRST, LAST = 3, 3, 6
FINE_TUNING_TIMEOUT_SECONDS = 8  # ranks arrive at the first collective after they imported transformers


def body(iterations, **training):
    return spec(3, iterations=iterations, **training)


def losses(run):
    return {line["iteration"]: line["loss"] for line in run.history() if line["loss"] is not None}


def test_the_gang_waits_and_its_losses_stay_the_same(tmp_path):
    impatient = {"collectiveTimeoutSeconds": TIMEOUT_SECONDS}
    first = Launched(tmp_path / "slow", body(FIRST, **impatient), command=SLOW)
    assert first.wait() == 0, first.text()
    resumed = Launched(tmp_path / "slow", body(LAST, **impatient), attempt=2, command=SLOW)
    try:
        resumed.until("the restored share is shown", lambda: re.search(r"restoring \d+ %", message(resumed)))
    finally:
        code = resumed.wait()
    assert code == 0, resumed.text()
    assert (resumed.read("status.json")["resumedFrom"], message(resumed)) == (FIRST, "")
    whole = Launched(tmp_path / "whole", body(LAST))
    assert whole.wait() == 0, whole.text()
    assert losses(resumed) == losses(whole)


def test_fine_tuning_waits_for_the_model_to_be_read_and_written(tmp_path):
    model, data = write_checkpoint(tmp_path / "model", "llama"), write_text(tmp_path / "text")
    body = language(data, model, speeds=(1.0, 1.0), iterations=2, collectiveTimeoutSeconds=FINE_TUNING_TIMEOUT_SECONDS)
    run = Launched(tmp_path / "run", body, command=[*SLOW[:2], str(FINE_TUNING_TIMEOUT_SECONDS * 3 / 2)])
    assert run.wait() == 0, run.text()
    written = sorted((tmp_path / "run" / "exported").glob("model-*.safetensors"))
    assert len(written) > 10
    assert plain_loss(tmp_path / "run" / "exported", data) > 0


def message(run):
    return (run.read("status.json") or {}).get("message", "")
