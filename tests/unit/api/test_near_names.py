"""The field that a misspelt one stands for."""

import pytest
from heterotp_api.job import HeteroTPJob
from heterotp_api.load import ManifestError, parse_object
from heterotp_api.near_names import near_field
from support.manifest_table import manifest


@pytest.mark.parametrize(
    ("location", "near"),
    [
        (("spec", "trainin"), "spec.training"),
        (("spec", "training", "batchsize"), "spec.training.batchSize"),
        (("spec", "training", "modle"), "spec.training.model"),
        (("spec", "workerGroups", 0, "relativSpeed"), "spec.workerGroups.relativeSpeed"),
        (("spec", "backoffLimit"), "spec.runPolicy.backoffLimit"),
        (("spec", "selection"), "spec.balancing.policy.zero.selection"),  # semi.zero is lower
        (("spec", "grain"), None),  # of zero, mig and reshard
        (("spec", "wholly", "unknown"), None),
        (("spec", "surprise"), None),
    ],
    ids=lambda value: str(value),
)
def test_the_nearest_field(location, near):
    assert near_field(HeteroTPJob, location) == near


def test_an_unknown_field_of_a_manifest_is_named_with_the_one_that_is_meant():
    with pytest.raises(ManifestError) as error:
        parse_object(manifest({"patch": {"spec": {"training": {"iterashuns": 5, "epochz": 3}}}}), "job.yaml")
    assert str(error.value).startswith("job.yaml: spec.training.iterashuns: is not a known field; did you mean spec.t")
