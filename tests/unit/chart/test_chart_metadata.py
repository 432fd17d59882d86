"""Chart.yaml: the data for Artifact Hub agree with the objects of the chart."""

import pytest
import yaml
from heterotp_api.load import parse_object
from support.rendered_chart import CHART, of_kind, one, render

METADATA = yaml.safe_load((CHART / "Chart.yaml").read_text())
NOTES = {name.removeprefix("artifacthub.io/"): text for name, text in METADATA["annotations"].items()}
HUB = {name: yaml.safe_load(NOTES[name]) for name in ("crds", "crdsExamples", "images", "changes", "links")}


def test_licence_category_and_kind():
    assert (NOTES["license"], NOTES["category"], NOTES["operator"]) == ("Apache-2.0", "ai-machine-learning", "true")


def test_every_crd_is_listed_as_it_is_installed():
    crds = of_kind(render(), "CustomResourceDefinition")
    installed = {
        (c["spec"]["names"]["kind"], v["name"], c["metadata"]["name"]) for c in crds for v in c["spec"]["versions"]
    }
    assert {(each["kind"], each["version"], each["name"]) for each in HUB["crds"]} == installed
    assert all(each["displayName"] and each["description"] for each in HUB["crds"])


@pytest.mark.parametrize("example", HUB["crdsExamples"], ids=lambda each: each["kind"])
def test_examples_are_valid(example):
    assert parse_object(example, "Chart.yaml").metadata.name == example["metadata"]["name"]


def test_every_kind_has_an_example():
    assert {each["kind"] for each in HUB["crdsExamples"]} == {each["kind"] for each in HUB["crds"]}


def test_the_images_are_those_of_the_pods():
    (container,) = one(render(), "Deployment")["spec"]["template"]["spec"]["containers"]
    trainer = next(each["value"] for each in container["env"] if each["name"] == "HETEROTP_TRAINER_IMAGE")
    listed = {each["name"]: each["image"] for each in HUB["images"]}
    assert listed == {"operator": container["image"], "trainer": trainer}


def test_changes_and_links_have_the_form_of_artifact_hub():
    kinds = {"added", "changed", "deprecated", "removed", "fixed", "security"}
    assert HUB["changes"] and all(each["kind"] in kinds and each["description"] for each in HUB["changes"])
    assert HUB["links"] and all(set(each) == {"name", "url"} for each in HUB["links"])
