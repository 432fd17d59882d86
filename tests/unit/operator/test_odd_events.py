"""Random watch events: whatever their order, and whatever the API server lets an object hold, nothing raises.

HETEROTP_FUZZ_EXAMPLES=10000 draws so many examples.
"""

import copy
import json
import os
from dataclasses import replace

from heterotp_api import names
from heterotp_operator.cluster import CONFIGMAPS, INJECTIONS, JOBS, PODS, POLICIES, SERVICES
from heterotp_operator.informers import Informers
from heterotp_operator.metrics import Metrics
from heterotp_operator.observe import PodWatch, observe
from heterotp_operator.poll_target import target
from heterotp_operator.published import PublishedControls
from heterotp_operator.reconcile.job_control import decide_control
from heterotp_operator.reconcile.plan import plan
from heterotp_operator.settings import Settings
from heterotp_operator.store import Stores
from heterotp_operator.trainer_poller import TrainerPoller
from hypothesis import given, settings
from hypothesis import strategies as st
from support.reconcile_world import EPOCH, World, injection, manifest, policy

MANY = settings(max_examples=int(os.environ.get("HETEROTP_FUZZ_EXAMPLES", "150")))
KEY = ("team", "job")
WORDS = st.sampled_from(
    ["", "0", "1", "2", "-1", "zero", "1e9", "9" * 30, "job", "uid-job", "Running", "Failed", "True"]
)
TEXTS = WORDS | st.text(max_size=12)
TIMES = st.sampled_from(["2023-11-14T22:13:20Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
CODES = st.integers(-(2**31), 2**31 - 1)
LABELS = (
    names.LABEL_JOB,
    *(names.LABEL_FIRST_RANK, names.LABEL_ATTEMPT, names.LABEL_GROUP, names.LABEL_INDEX),
    names.LABEL_TEMPLATE_HASH,
)
LABEL_MAPS = st.dictionaries(st.sampled_from(LABELS), WORDS, max_size=4)
ENDED = st.fixed_dictionaries(
    {"exitCode": CODES}, optional={"reason": TEXTS, "message": TEXTS, "finishedAt": TIMES, "signal": CODES}
)
STATES = st.fixed_dictionaries(
    {}, optional={"terminated": ENDED, "waiting": st.fixed_dictionaries({}, optional={"reason": TEXTS})}
)
CONTAINERS = st.fixed_dictionaries(
    {"name": st.sampled_from([names.CONTAINER, "other"]), "restartCount": CODES},
    optional={"state": STATES, "lastState": STATES, "ready": st.booleans()},
)
CONDITIONS = st.fixed_dictionaries(
    {"type": st.sampled_from(["Ready", "PodScheduled", "DisruptionTarget", "x"]), "status": TEXTS},
    optional={"reason": TEXTS, "message": TEXTS, "lastTransitionTime": TIMES},
)
POD_STATUS = st.fixed_dictionaries(
    {},
    optional={
        "phase": TEXTS,
        "reason": TEXTS,
        "message": TEXTS,
        "podIP": TEXTS,
        "startTime": TIMES,
        "conditions": st.lists(CONDITIONS, max_size=3),
        "containerStatuses": st.lists(CONTAINERS, max_size=2),
        "initContainerStatuses": st.lists(CONTAINERS, max_size=2),
    },
)
OWNERS = st.lists(
    st.fixed_dictionaries(
        {"apiVersion": TEXTS, "kind": TEXTS, "name": TEXTS, "uid": WORDS}, optional={"controller": st.booleans()}
    ),
    max_size=2,
)
METADATA = st.fixed_dictionaries(
    {},
    optional={
        "labels": LABEL_MAPS,
        "annotations": st.dictionaries(st.sampled_from([names.ANNOTATION_CONTROL, "a"]), TEXTS, max_size=2),
        "ownerReferences": OWNERS,
        "deletionTimestamp": TIMES,
        "deletionGracePeriodSeconds": st.integers(0, 2**40),
        "creationTimestamp": TIMES,
    },
)
DATA = st.dictionaries(st.sampled_from([names.CONTROL_FILE, "x"]), TEXTS | st.just('{"generation": "x"}'), max_size=2)
STARTED = World(manifest()).started()
CHILDREN = [
    *((PODS, pod) for pod in STARTED.pods.values()),
    (SERVICES, STARTED.objects["Service"]),
    (CONFIGMAPS, STARTED.objects["ConfigMap"]),
    (JOBS, STARTED.job),
    (POLICIES, policy("p")),
    (INJECTIONS, injection("i")),
]


@st.composite
def events(draw):
    """An event of an object of the gang, its labels, owners and status replaced by others of the same types."""
    resource, body = draw(st.sampled_from(CHILDREN))
    body = copy.deepcopy(body)
    metadata = body["metadata"]
    metadata.setdefault("uid", f"uid-{metadata['name']}")
    metadata["resourceVersion"] = str(draw(st.integers(0, 9)))
    if resource in (PODS, SERVICES, CONFIGMAPS):
        odd = draw(METADATA)
        metadata |= odd | {"labels": {**metadata.get("labels", {}), **odd.get("labels", {})}}
    if resource is PODS and draw(st.booleans()):
        body["status"] = draw(POD_STATUS)
    if resource is CONFIGMAPS:
        body["data"] = draw(DATA)
    return draw(st.sampled_from(["ADDED", "MODIFIED", "DELETED"])), resource, body


@MANY
@given(happened=st.lists(events(), min_size=1, max_size=12))
def test_events_in_any_order_and_of_odd_objects_raise_nothing(happened):
    stores, keys, published = Stores(), [], PublishedControls()
    informers = Informers(stores, lambda resource, key: keys.append((resource, key)))
    poller = TrainerPoller(stores, published, lambda key: None, 5.0, 1.0, "operator-1", Metrics())
    watch = PodWatch()
    for number, (kind, resource, body) in enumerate([("ADDED", JOBS, STARTED.job), *happened]):
        (informers.drop if kind == "DELETED" else informers.upsert)(resource, copy.deepcopy(body))
        job = stores.jobs.get(KEY)
        if job is None:
            continue
        target(job, stores.pods.of_job(KEY))
        ages = watch.look(stores.pods.of_job(KEY), float(number))
        seen = observe(stores, poller, Settings(), KEY, job, EPOCH, control=None)
        aged = replace(seen, terminating_for=ages.terminating, ended_for=ages.ended)
        decision = plan(replace(aged, control=decide_control(aged)))
        json.dumps([decision.status, [repr(each) for each in decision.actions]], allow_nan=False)
    assert (JOBS, KEY) in keys
