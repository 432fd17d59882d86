"""Short runs of random faults by fixed seeds; `make chaos` runs longer ones and other seeds."""

import pytest
from chaos.history import read
from chaos.run import run_on_api, summary

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
MINUTES = 1.5


@pytest.mark.parametrize("seed", [1])
def test_no_fault_breaks_an_invariant(guardian, new_api_server, tmp_path, seed):
    with new_api_server(f"-chaos{seed}") as kubeconfig:
        violations = run_on_api(guardian, kubeconfig, tmp_path, seed, MINUTES)
    assert not violations, "\n".join([*map(str, violations), *summary(read(tmp_path)), f"history: {tmp_path}"])
