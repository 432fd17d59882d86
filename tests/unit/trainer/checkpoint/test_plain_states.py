"""State dicts as JSON and tensors: what is stored comes back as it was, what is not is named."""

import json
from collections import Counter, OrderedDict

import numpy as np
import pytest
import torch
from heterotp_trainer.checkpoint.plain import decode, encode
from torch import nn

WEIGHT = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))


def there_and_back(value):
    tensors = []
    body = json.loads(json.dumps(encode(value, "x", tensors)))
    return decode(body, tensors.__getitem__)


VALUES = {
    "scalars": [1, -2.5, float("inf"), "a", None, True, 1e-300],
    "tuples": (1, ("b", []), ()),
    "dicts": {"a": {1: 2, None: 3, 2.5: (4,)}, "dict": {"tensor": 0}},
    "a long list": [*range(-1, 3000)],
    "a long list of others": [*range(3000), True],
    "a long list of large numbers": [2**70, *range(3000)],
    "counter": Counter({3: 1, 5: 2}),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_values_come_back_as_they_were(value):
    back = there_and_back(value)
    assert back == value and type(back) is type(value)


def test_an_order_of_millions_of_samples_is_no_long_message():
    tensors = []
    assert encode({"order": list(range(2_000_000))}, "x", tensors) == {"dict": [["order", {"ints": 0}]]}
    assert tensors[0].dtype == torch.int64


def test_tensors_and_numbers_of_numpy_come_back():
    back = there_and_back(OrderedDict(w=[torch.arange(3), WEIGHT], n=np.float64(0.5)))
    assert torch.equal(back["w"][0], torch.arange(3)) and torch.equal(back["w"][1], WEIGHT)
    assert (back["n"], type(back)) == (0.5, dict)


@pytest.mark.parametrize(
    "make",
    [
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.5, total_steps=9),
        lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [2, 4]),
        lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
        lambda o: torch.optim.lr_scheduler.SequentialLR(
            o, [torch.optim.lr_scheduler.LinearLR(o), torch.optim.lr_scheduler.ExponentialLR(o, 0.9)], [2]
        ),
        lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda epoch: 0.5),
    ],
    ids=["OneCycle", "MultiStep", "Plateau", "WarmRestarts", "Sequential", "Lambda"],
)
def test_schedulers_of_torch_can_be_kept(make):
    schedule = make(torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1, momentum=0.9))
    assert there_and_back(schedule.state_dict()) == schedule.state_dict()


endless = []
endless.append(endless)
REFUSED = {
    "set": ({"a": [{1}]}, r"^x\['a'\]\[0\] is of type builtins\.set: a checkpoint stores numbers, strings"),
    "function": ({"f": print}, r"^x\['f'\] is of type builtins\.builtin_function"),
    "array": (np.ones(2), r"^x is of type numpy\.ndarray"),
    "key": ({(1, 2): 3}, r"^x: its key \(1, 2\) is of type tuple"),
    "sparse": (torch.ones(2).to_sparse(), r"^x is of type torch\.Tensor"),
    "endless": (endless, r"is of type builtins\.list"),
}


@pytest.mark.parametrize(("value", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_stored_is_named(value, words):
    with pytest.raises(ValueError, match=words):
        there_and_back(value)
