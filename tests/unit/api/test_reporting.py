"""spec.reporting: what it takes, and what trainers that are older than it are told."""

import pytest
from heterotp_api.crd import crds
from heterotp_api.job import HeteroTPJobSpec
from heterotp_api.schema import unset_undeclared
from pydantic import ValidationError

BASE = {"tensorParallelDegree": 1, "workerGroups": [{"name": "a"}], "training": {}}


def spec(**reporting):
    return HeteroTPJobSpec.model_validate({**BASE, "reporting": reporting})


def test_what_is_asked_is_told_by_field():
    assert spec(tensorboard={}, wandb={"mode": "offline"}).reporting.asked == ("tensorboard", "wandb")
    assert spec().reporting.asked == ()
    assert "reporting" not in HeteroTPJobSpec.model_validate(BASE).dump()


def test_an_empty_object_survives_being_written_and_read():
    given = spec(tensorboard={}, mlflow={})
    assert given.dump()["reporting"] == {"tensorboard": {}, "mlflow": {}}
    assert HeteroTPJobSpec.model_validate(given.dump()) == given


def test_wandb_is_offline_unless_told_otherwise_and_no_default_is_written():
    given = spec(wandb={})
    assert given.reporting.wandb.mode == "offline"
    assert unset_undeclared(given)["reporting"] == {"wandb": {"mode": True}}
    (job,) = (crd for crd in crds() if crd["spec"]["names"]["kind"] == "HeteroTPJob")
    fields = job["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert "default" not in fields["reporting"]
    assert "default" not in fields["reporting"]["properties"]["wandb"]["properties"]["mode"]


@pytest.mark.parametrize(
    "wrong", [{"wandb": {"mode": "shared"}}, {"tensorboard": {"port": 6006}}, {"comet": {}}], ids=str
)
def test_other_fields_and_values_are_refused(wrong):
    with pytest.raises(ValidationError):
        spec(**wrong)
