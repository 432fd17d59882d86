"""The status document: what an operator reads of trainers of other versions."""

import json

import pytest
from heterotp_api.trainer_status import TrainerStatus

STATUS = {"job": "j", "attempt": 1, "state": "running", "startedAt": 1.0}


@pytest.mark.parametrize(
    ("fields", "decision_id"),
    [({}, 0), ({"decisionId": 7}, 7), ({"planId": 7}, 7), ({"planId": 6, "decisionId": 7}, 7)],
    ids=["none", "of today", "of an older trainer", "both"],
)
def test_the_number_of_a_decision_is_read_from_older_trainers(fields, decision_id):
    status = TrainerStatus.model_validate_json(json.dumps(STATUS | fields))
    assert status.decision_id == decision_id
    assert json.loads(status.model_dump_json(by_alias=True)).get("decisionId") == decision_id
    assert "planId" not in status.model_dump(by_alias=True)
    assert TrainerStatus(job="j", attempt=1, state="running", started_at=1.0, decision_id=7).decision_id == 7
