"""What session.keep takes and what it refuses."""

import pytest
import torch
from heterotp_trainer.checkpoint.kept import Kept
from heterotp_trainer.tensor_parallel.unit_spec import ffn, mark_sharded
from torch import nn

SCHEDULE = torch.optim.lr_scheduler.StepLR(torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1), 2)
SHARDED = nn.Linear(2, 3)
mark_sharded(SHARDED.weight, ffn(3)["fc1"])
REFUSED = {
    "taken": ("taken", SCHEDULE, r"^session\.keep\('taken', StepLR\): another object has this name"),
    "no name": ("", SCHEDULE, r"the name must be a text that is not empty"),
    "no state": ("a", object(), r"^session\.keep\('a', object\): it needs state_dict\(\) and load_state_dict"),
    "units": ("ema", SHARDED, r"^session\.keep\('ema', Linear\): it holds units of this rank"),
    "units of an optimizer": ("o", torch.optim.SGD(SHARDED.parameters()), "it holds units of this rank"),
}


@pytest.mark.parametrize(("name", "thing", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_kept_is_refused(name, thing, words):
    kept = Kept()
    kept.add("taken", SCHEDULE)
    with pytest.raises(ValueError, match=words):
        kept.add(name, thing)


def test_an_object_must_be_kept_before_it_is_restored():
    kept = Kept()
    kept.check(None, 3)
    with pytest.raises(ValueError, match=r"too late: keep all objects before session\.restore"):
        kept.add("schedule", SCHEDULE)
