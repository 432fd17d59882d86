"""Random control documents: a refusal with its reason, never a traceback; what rank 0 accepts, all ranks read alike.

HETEROTP_FUZZ_EXAMPLES=10000 draws so many examples for each test.
"""

import copy
import json
import os
from pathlib import Path
from typing import get_args

from heterotp_trainer.boundary.control_channel import ControlError, ControlFile, RefusalReason, parse_document
from hypothesis import given, settings
from hypothesis import strategies as st
from support.damaged_manifests import VALUES, places

fuzzed = settings(max_examples=int(os.environ.get("HETEROTP_FUZZ_EXAMPLES", "300")))
GOOD = [
    {"schemaVersion": 1, "generation": 1},
    {"generation": 2, "leaseSeconds": 60.0, "injections": [{"uid": "u2", "ranks": [0, 2], "slowdown": 2}]},
    {"generation": 3, "balancing": {"strategy": "ZERO", "zero": {"selection": "PriDiffR", "fixedRatio": 0.5}}},
    {"generation": 4, "balancing": {"strategy": "SEMI", "maxPrunedShare": 0.2, "semi": {"mig": {"grain": 8}}}},
    {
        "generation": 5,
        "injections": [
            {"uid": "u1", "ranks": [3], "slowdown": 4.0, "start": {"iteration": 5}, "stop": {"iteration": 9}},
            {"uid": "u2", "ranks": [1, 2], "slowdown": 4.0, "pattern": {"roundRobin": {"every": {"iterations": 5}}}},
        ],
    },
]
ODD = VALUES | st.sampled_from([float("inf"), float("nan"), -0.0, 2**53, 2**53 + 1, [1, 1], {}, "ZERO", "u1"])


@st.composite
def damaged(draw):
    """A good document with one to three values replaced, removed or added."""
    body = json.loads(json.dumps(draw(st.sampled_from(GOOD))))
    for _ in range(draw(st.integers(1, 3))):
        *above, last = draw(st.sampled_from([*places(body), ("generation",)]))
        holder = body
        for key in above:
            holder = holder[key]
        match draw(st.sampled_from(["replace", "replace", "remove", "add"])):
            case "remove" if last in holder or isinstance(holder, list):
                del holder[last]
            case "add" if isinstance(holder, dict):
                holder[draw(st.sampled_from(["leaseSeconds", "paused", "seed", "x"]))] = copy.deepcopy(draw(ODD))
            case _:
                holder[last] = copy.deepcopy(draw(ODD))
    return body


def taken(raw):
    """Return a file of a gang of four ranks that has read these bytes, and the reasons of its refusals."""
    reasons = []
    file = ControlFile(Path("nowhere"), 4, lambda error: reasons.append(error.reason))
    file._take(raw)
    assert (file.document is None) == (file.error is not None) == bool(reasons)
    assert set(reasons) <= set(get_args(RefusalReason))
    return file


@fuzzed
@given(raw=st.binary(max_size=200) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_judged(raw):
    assert taken(raw).document is None


@fuzzed
@given(body=VALUES)
def test_any_value_is_judged(body):
    assert taken(json.dumps(body).encode()).document is None


@fuzzed
@given(body=damaged())
def test_what_rank_0_accepts_all_ranks_read_alike(body):
    document = taken(json.dumps(body).encode()).document
    if document is None:
        return
    sent = document.model_dump_json(by_alias=True, exclude_none=True)
    try:
        assert parse_document(sent) == document
    except ControlError as error:
        raise AssertionError(f"rank 0 accepts it, the others raise: {error}") from None
