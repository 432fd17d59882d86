"""What a gang with runPolicy.elastic can do of a policy."""

import pytest
from heterotp_api.elastic import elastic_problem
from heterotp_api.policy import BalancingSettings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"strategy": "None"}, None),
        ({"strategy": "MIG"}, None),
        ({"strategy": "RESHARD"}, None),
        ({"strategy": "AUTO"}, None),
        ({"strategy": "AUTO", "maxPrunedShare": 0.2}, "strategy: AUTO: prunes columns"),
        ({"strategy": "ZERO"}, "strategy: ZERO: prunes columns"),
        ({"strategy": "SEMI"}, "strategy: SEMI: prunes columns"),
        ({"strategy": "RESHARD", "reshard": {"evict": [1]}}, "reshard.evict: [1]: ranks get other numbers"),
    ],
)
def test_what_prunes_or_names_ranks_is_refused(settings, words):
    found = elastic_problem(BalancingSettings.model_validate(settings))
    assert found is None if words is None else words in found
