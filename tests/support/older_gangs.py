"""Gangs that the first version of the operator made: their objects and their status, from tests/data."""

import copy

import yaml
from support.gang import Gang
from support.kube import KubeError
from support.places import ROOT

OLDER = {
    each["job"]["metadata"]["name"]: each
    for each in yaml.safe_load_all((ROOT / "tests" / "data" / "older_gangs.yaml").read_text())
}


class OlderGang(Gang):
    """A running gang with the objects and the status of the first version."""

    def __init__(self, kube, namespace, older):
        super().__init__(kube, namespace, older["job"])
        self.older = copy.deepcopy(older)
        for child in self.older["children"]:
            child["body"]["metadata"]["ownerReferences"][0]["uid"] = self.body["metadata"]["uid"]
        self.write()

    def write(self):
        """Write children and status as the first version does: what is there already is replaced."""
        for child in self.older["children"]:
            self._write(child["plural"], child["body"])
        for pod in self.pods():
            self.run(pod)
        status = {"status": self.older["status"]}
        self.kube.patch("heterotpjobs", self.namespace, self.name, status, "status")

    def _write(self, plural, body):
        try:
            self.kube.create(plural, self.namespace, body)
        except KubeError as error:
            if error.code != 409:
                raise
            if plural != "pods":  # which no operator changes
                self.kube.patch(plural, self.namespace, body["metadata"]["name"], body)

    def uids(self):
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self.pods()}
