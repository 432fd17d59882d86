"""The list of gang schedulers against what a job may name."""

from typing import get_args

from heterotp_api.run_policy import Gang
from heterotp_operator.cluster import PODGROUPS
from heterotp_operator.reconcile.gang_schedulers.registry import SCHEDULERS, pod_group


def test_every_provider_of_the_api_has_its_scheduler():
    assert {"none", *SCHEDULERS} == set(get_args(Gang.model_fields["provider"].annotation))


def test_the_client_serves_every_pod_group():
    groups = {
        name: pod_group(Gang(provider=name, queue="q" if name != "coscheduling" else None), {}, 3)
        for name in SCHEDULERS
    }
    made = {name: group["apiVersion"] for name, group in groups.items() if group is not None}
    assert made == {name: resource.api_version for name, resource in PODGROUPS.items()}
