"""The control file: what is refused and why, and that the last good document stays."""

import json

import pytest
from heterotp_trainer.boundary.control_channel import ControlError, ControlFile, parse_document

INJECTION = {"uid": "u1", "ranks": [3], "slowdown": 4}


def injected(*changes):
    return json.dumps({"generation": 1, "injections": [{**INJECTION, **change} for change in changes]})


def test_an_injection_needs_uid_ranks_and_slowdown_only():
    (found,) = parse_document(injected({})).injections
    assert (found.uid, found.name, found.ranks, found.slowdown, found.mode, found.paused) == ("u1", "", [3], 4, None, 0)
    assert parse_document(json.dumps({"generation": 1, "injections": [found.dump()]})).injections == [found]


@pytest.mark.parametrize(
    ("text", "reason", "words"),
    [
        ("{", "malformed", "is not JSON"),
        ("[]", "malformed", "must be an object, not list"),
        ("[" * 100_000, "malformed", "is not JSON"),
        ('{"generation": ' + "9" * 5000 + "}", "malformed", "is not JSON"),
        ('{"generation": 9007199254740993}', "invalid", "generation: 9007199254740993"),
        ('{"schemaVersion": 2, "generation": 1}', "newer", "schemaVersion: 2 is newer than 1"),
        ('{"schemaVersion": "x", "generation": 1}', "newer", "'x'"),
        ('{"generation": -1}', "invalid", "generation: -1"),
        ("{}", "invalid", "generation: is required"),
        ('{"generation": 1, "leaseSeconds": 1e999}', "invalid", "leaseSeconds: inf input should be a finite number"),
        (
            '{"generation": 1, "balancing": {"strategy": "MIG", "zero": {}}}',
            "invalid",
            "balancing.zero: zero belongs to strategy",
        ),
        (injected({"ranks": []}), "invalid", "injections[0].ranks: list should have at least 1 item"),
        ('{"generation": 1, "trace": {"uid": "../a", "steps": 1}}', "invalid", "trace.uid: '../a'"),
        ('{"generation": 1, "trace": {"uid": "a", "steps": 1000}}', "invalid", "trace.steps: 1000"),
        (injected({"uid": ""}), "invalid", "injections[0].uid: ''"),
        (injected({"slowdown": 0.5}), "invalid", "injections[0].slowdown: 0.5"),
        (injected({"mode": "nap"}), "invalid", "injections[0].mode: 'nap'"),
        (injected({"ranks": [1, 1]}), "invalid", "injections[0].ranks: 1 is named twice"),
        (injected({"ranks": [-1]}), "invalid", "injections[0].ranks[0]: -1"),
        (injected({"targets": {}}), "invalid", "injections[0].targets: is not a known field"),
        (
            injected({"start": {"seconds": 5}, "stop": {"seconds": 5}}),
            "invalid",
            "injections[0].stop: stop must be after start",
        ),
        (injected({}, {}), "invalid", "injections: each injection needs a uid of its own"),
    ],
)
def test_bad_documents_name_reason_and_field(text, reason, words):
    with pytest.raises(ControlError) as error:
        parse_document(text)
    assert error.value.reason == reason
    assert words in str(error.value)


def write(path, generation, **more):
    path.write_text(json.dumps({"schemaVersion": 1, "generation": generation, **more}))


@pytest.fixture
def control(tmp_path):
    errors = []
    file = ControlFile(tmp_path, 4, lambda error: errors.append(error.reason))
    file.reasons = errors
    return file


def test_the_last_good_document_stays(control, tmp_path):
    path = tmp_path / "control.json"
    control.check()
    assert control.document is None and control.error is None
    write(path, 3)
    control.check()
    assert control.document.generation == 3
    path.write_text("{")
    control.check()
    control.check()
    assert control.document.generation == 3
    assert "is not JSON" in str(control.error)
    assert control.error.generation is None
    assert control.reasons == ["malformed"]  # once per bad document, not once per look
    write(path, 4, balancing={"strategy": "ZERO"})
    control.check()
    assert (control.document.generation, control.document.balancing.strategy, control.error) == (4, "ZERO", None)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"balancing": {"strategy": "MIG", "mig": {"fixedRatio": 0.5, "ranks": [1, 4]}}},
            "balancing.mig.ranks: 4: the job has ranks 0 .. 3",
        ),
        (
            {"injections": [{"uid": "a", "ranks": [3], "slowdown": 2}, {"uid": "b", "ranks": [9], "slowdown": 2}]},
            "injections[1].ranks: 9: the job has ranks 0 .. 3",
        ),
        ({"trace": {"uid": "a", "steps": 1, "ranks": [4]}}, "trace.ranks: 4: the job has ranks 0 .. 3"),
    ],
    ids=["policy", "injection", "trace"],
)
def test_ranks_that_the_job_does_not_have_are_refused(control, tmp_path, more, words):
    write(tmp_path / "control.json", 5, **more)
    control.check()
    assert control.document is None and words in str(control.error)
    assert control.error.generation == 5
    assert control.reasons == ["invalid"]


def test_bytes_that_are_no_text_are_reported(control, tmp_path):
    (tmp_path / "control.json").write_bytes(b"\xff\xfe{}")
    control.check()
    assert control.document is None and control.reasons == ["malformed"]


def test_an_older_generation_is_refused(control, tmp_path):
    write(tmp_path / "control.json", 5)
    control.check()
    write(tmp_path / "control.json", 4)
    control.check()
    assert control.document.generation == 5
    assert control.reasons == ["older"]


def test_a_swapped_link_is_followed(tmp_path):
    """A kubelet updates a mounted ConfigMap by pointing ..data to a new directory."""
    mount = tmp_path / "mount"
    mount.mkdir()
    for generation in (1, 2):
        version = mount / f"..v{generation}"
        version.mkdir()
        write(version / "control.json", generation)
    (mount / "..data").symlink_to("..v1")
    (mount / "control.json").symlink_to("..data/control.json")
    control = ControlFile(mount, 4)
    control.check()
    assert control.document.generation == 1
    (mount / "..new").symlink_to("..v2")
    (mount / "..new").rename(mount / "..data")
    control.check()
    assert control.document.generation == 2


def test_a_policy_that_the_model_cannot_follow_is_refused_and_the_last_good_one_stays(control, tmp_path):
    control.problem = lambda settings: "zero.pairedUnits: true: no" if settings.pruning.paired_units else None
    write(tmp_path / "control.json", 3, balancing={"strategy": "ZERO"})
    control.check()
    write(tmp_path / "control.json", 4, balancing={"strategy": "ZERO", "zero": {"pairedUnits": True}})
    control.check()
    assert (control.document.generation, control.error.generation, control.error.reason) == (3, 4, "invalid")
    assert str(control.error) == "control.json: balancing.zero.pairedUnits: true: no"
