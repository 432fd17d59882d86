"""The models judge the shared table of manifests."""

import pytest
import yaml
from heterotp_api.load import ManifestError, load_manifest, parse_object
from support.manifest_table import REFUSED_FILES, TABLE, manifest, refused_text


@pytest.mark.parametrize("case", TABLE["good"], ids=lambda case: case["name"])
def test_good_manifests_pass_and_round_trip(case):
    parsed = parse_object(manifest(case))
    assert parse_object(parsed.dump()) == parsed


@pytest.mark.parametrize("case", TABLE["bad"], ids=lambda case: case["name"])
def test_bad_manifests_name_field_and_reason(case):
    with pytest.raises(ManifestError) as caught:
        parse_object(manifest(case), "job.yaml")
    assert caught.value.field == case["field"]
    assert case["models"] in str(caught.value)
    assert str(caught.value).startswith("job.yaml: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no object"),
        ("- a\n", "must hold objects, not a list"),
        ("a: [", "is not YAML"),
        ("name: {{ .Values.name }}", "is not YAML: a key must be a string"),
        ("a: {b: 1, c: 2, b: 3}", "is not YAML: key 'b' occurs twice"),  # kubectl takes the last one in silence
        ("kind: HeteroTPJob\n", "apiVersion: must be heterotp.io/v1alpha1"),
        ("apiVersion: heterotp.io/v1alpha1\nkind: Pod\n", "kind: 'Pod' must be one of HeteroTPJob"),
        ("apiVersion: heterotp.io/v1alpha1\nkind: HeteroTPJob\nmetadata: {name: a}\n", "spec: is required"),
    ],
    ids=["empty", "list", "broken", "template", "key twice", "no version", "foreign kind", "no spec"],
)
def test_files_that_hold_no_manifest(tmp_path, text, message):
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(ManifestError, match=r"job\.yaml") as caught:
        load_manifest(path)
    assert message in str(caught.value)


def test_numbers_are_what_they_are_to_kubectl(tmp_path):
    path = tmp_path / "job.yaml"
    numbers = "training: {learningRate: 1e-3, weightDecay: 5E-2, epochs: 1e1, batchSize: 32.0}"
    path.write_text(yaml.safe_dump(TABLE["base"]).replace("training: {}", numbers))
    (job,) = load_manifest(path)
    training = job.spec.training
    assert (training.learning_rate, training.weight_decay, training.epochs, training.batch_size) == (
        0.001,
        0.05,
        10,
        32,
    )


@pytest.mark.parametrize("case", REFUSED_FILES, ids=lambda case: case["name"])
def test_what_kubectl_refuses_before_any_rule_is_refused_here_too(tmp_path, case):
    path = tmp_path / "job.yaml"
    path.write_text(refused_text(case))
    with pytest.raises(ManifestError) as caught:
        load_manifest(path)
    assert case["models"] in str(caught.value)


def test_a_broken_rule_shows_the_value_that_breaks_it():
    with pytest.raises(ManifestError, match=r"spec\.tensorParallelDegree: 5 tensorParallelDegree must equal the sum"):
        parse_object(manifest({"patch": {"spec": {"tensorParallelDegree": 5}}}))


def test_missing_file_is_named(tmp_path):
    with pytest.raises(ManifestError, match=r"absent\.yaml: cannot be read: No such file"):
        load_manifest(tmp_path / "absent.yaml")
