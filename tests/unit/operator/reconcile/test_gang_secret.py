"""The secret of a gang: what it follows from, which pods get it, and that no gang is made with two."""

import pytest
from heterotp_api import names, reasons
from heterotp_api.names import Env
from heterotp_operator.reconcile.actions import CreatePod
from heterotp_operator.reconcile.gang_secret import OperatorKey
from support.reconcile_world import World, manifest

KEY, OTHER = OperatorKey(b"k" * 32), OperatorKey(b"o" * 32)
SPOOFED = {
    "metadata": {"annotations": {names.ANNOTATION_SECRET: "mine", "note": "1"}},
    "spec": {"containers": [{"name": "trainer", "env": [{"name": Env.RENDEZVOUS_SECRET, "value": "mine" * 8}]}]},
}


def environment(pod):
    (container,) = pod["spec"]["containers"]
    return {entry["name"]: entry["value"] for entry in container["env"]}


def secrets(world):
    return {environment(pod).get(Env.RENDEZVOUS_SECRET) for pod in world.pods.values()}


def test_a_secret_follows_from_key_uid_and_attempt_alone():
    assert KEY.secret("u", 1) == OperatorKey(b"k" * 32).secret("u", 1)
    others = [KEY.secret("u", 2), KEY.secret("v", 1), OTHER.secret("u", 1), KEY.id]
    assert len({KEY.secret("u", 1), *others}) == 5
    # checked in: a newer operator that derived another one would cut running gangs off from their renewals
    assert KEY.secret("u", 1) == "2c938f01b17031bb5317598445c49793d8c03488258a82c15b7ef0235a59867d"


@pytest.mark.parametrize("value", [b"", b"k" * 31, b"k" * 33])
def test_a_key_of_another_length_is_refused(value):
    with pytest.raises(ValueError, match=f"^has {len(value)} bytes: must have 32$"):
        OperatorKey(value)


def test_no_text_of_what_is_observed_holds_the_key():
    shown = repr(World(manifest(), key=KEY).observe())
    assert "OperatorKey()" in shown
    assert "kkkk" not in shown


@pytest.mark.parametrize("template", [None, SPOOFED], ids=["plain", "a template with its own"])
def test_all_pods_of_an_attempt_have_its_secret(template):
    world = World(manifest(template=template), key=KEY).started()
    assert secrets(world) == {KEY.secret("uid-job", 1)}
    assert {pod["metadata"]["annotations"][names.ANNOTATION_SECRET] for pod in world.pods.values()} == {KEY.id}
    world.end("job-a-0-1", 1)
    world.settle()
    world.vanish()
    world.settle()
    assert secrets(world) == {KEY.secret("uid-job", 2)}


def test_the_key_is_in_no_object_and_the_secret_in_no_status_or_event():
    world = World(manifest(), key=KEY).started()
    made = repr((world.job, world.pods, world.objects, world.events))
    assert KEY.value.hex() not in made and "kkkk" not in made
    assert KEY.secret("uid-job", 1) not in repr((world.job, world.objects, world.events))


@pytest.mark.parametrize(("before", "after"), [(None, KEY), (KEY, OTHER), (KEY, None)], ids=["upgrade", "new", "none"])
def test_another_key_disturbs_no_gang_that_is_complete(before, after):
    world = World(manifest(), key=before).started()
    pods = world.picture()
    world.key = after
    world.settle()
    assert world.picture() == pods


def half_made(key):
    """Return a world whose operator, with this key, has made one of two pods."""
    world = World(manifest(), key=key)
    for action in world.plan().actions:
        world.act(action)
        if isinstance(action, CreatePod):
            return world
    raise AssertionError("no pod was made")


def test_a_gang_that_an_older_operator_began_without_a_secret_is_completed_without_one():
    world = half_made(None)
    world.key = KEY
    world.settle()
    assert (len(world.pods), secrets(world), world.status["attempt"]) == (3, {None}, 1)
    assert {environment(pod)[Env.ATTEMPT] for pod in world.pods.values()} == {"1"}


def test_a_gang_is_never_made_with_the_secrets_of_two_keys():
    world = half_made(KEY)
    world.key = OTHER
    world.settle()
    assert world.condition("Restarting")["reason"] == reasons.SECRET_CHANGED
    world.vanish()
    world.settle()
    assert (secrets(world), len(world.pods)) == ({OTHER.secret("uid-job", 2)}, 3)
    assert (world.status["attempt"], world.status["restarts"]) == (2, 0)
