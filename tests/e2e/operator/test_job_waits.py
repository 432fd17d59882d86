"""The status of a job shows what it waits for."""

import pytest
from support.cluster_job import job, template

pytestmark = pytest.mark.e2e


def test_an_image_that_does_not_exist(space):
    groups = [{"name": "only", "template": template(image="heterotp/nowhere:none")}]
    run = space.apply(job("imageless", groups, training={"iterations": 1}))
    status = run.reaches(waitingFor="ImagePull")
    assert status["phase"] in ("Pending", "Starting")
    assert status["restarts"] == 0


def test_no_node_fits(space):
    groups = [{"name": "only", "template": template(nodeSelector={"heterotp.io/accelerator": "none-like-this"})}]
    run = space.apply(job("homeless", groups, training={"iterations": 1}))
    status = run.reaches(waitingFor="Unschedulable")
    assert status["phase"] in ("Pending", "Starting")
    assert status["restarts"] == 0
