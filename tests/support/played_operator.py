"""A test plays the operator of the job demo: it writes statuses, and publishes what is asked or refuses it."""

import threading
from contextlib import closing, contextmanager

from support.kube import Kube, KubeError

NAMESPACE = "plugin"


def write_status(gang, status):
    gang.kube.patch("heterotpjobs", gang.namespace, gang.name, {"status": status}, "status")


@contextmanager
def operator(kubeconfig, refuse=""):
    """Play the operator of the job demo: all that is written is published, and applied, or refused."""
    stop = threading.Event()

    def reconcile(kube):
        body = kube.get("heterotpjobs", NAMESPACE, "demo")
        reported = body["status"]["balancing"]
        listed = {each["metadata"]["uid"]: each for each in kube.list("stragglerinjections", NAMESPACE)}
        seen = (body["metadata"]["generation"], sorted(listed))
        if seen == reconcile.seen:
            return
        reconcile.seen = seen
        for each in listed.values():
            phase = {"phase": "Failed", "message": refuse} if refuse else {"phase": "Injecting"}
            kube.patch("stragglerinjections", NAMESPACE, each["metadata"]["name"], {"status": phase}, "status")
        generation = reported["generation"] + 1
        news = {"problem": refuse} if refuse else {"appliedGeneration": generation}
        status = {"observedGeneration": seen[0], "balancing": {"generation": generation, **news}}
        kube.patch("heterotpjobs", NAMESPACE, "demo", {"status": status}, "status")

    def play():
        with closing(Kube(kubeconfig)) as kube:
            body = kube.get("heterotpjobs", NAMESPACE, "demo")
            listed = kube.list("stragglerinjections", NAMESPACE)
            reconcile.seen = (body["metadata"]["generation"], sorted(each["metadata"]["uid"] for each in listed))
            ready.set()
            while not stop.wait(0.05):
                try:
                    reconcile(kube)
                except KubeError as error:
                    if error.code != 404:  # deleted this very moment
                        raise

    ready = threading.Event()
    thread = threading.Thread(target=play)
    thread.start()
    assert ready.wait(240)
    try:
        yield
    finally:
        stop.set()
        thread.join()


def injections(kube):
    return {each["metadata"]["name"]: each for each in kube.list("stragglerinjections", NAMESPACE)}
