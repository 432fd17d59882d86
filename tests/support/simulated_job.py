"""The manifest of a job that tests simulate, and what a run of it leaves."""

import json
from dataclasses import asdict

from heterotp_api.load import load_manifest
from heterotp_cli.simulate.machine import machine_of

MANIFEST = """
apiVersion: heterotp.io/v1alpha1
kind: HeteroTPJob
metadata: {name: four}
spec:
  tensorParallelDegree: 4
  workerGroups:
  - {name: a, processesPerPod: 3, relativeSpeed: 1, device: DEVICE, template: {spec: {containers: [{name: trainer}]}}}
  - {name: b, relativeSpeed: SPEED, device: DEVICE, template: {spec: {containers: [{name: trainer}]}}}
  training:
    model: {hiddenSize: 64, depth: 2, heads: 8, patchSize: 4}
    data: {name: synthetic}
    batchSize: 16
    initialShares: SHARES
"""
DEVICE = (
    "{type: emulated, teraflops: 0.001, fixedSeconds: 0.02, linkBytesPerSecond: 1.0e+9, linkLatencySeconds: 0.0001}"
)


def manifest(folder, device=DEVICE, shares="even", speed="1"):
    path = folder / "job.yaml"
    path.write_text(MANIFEST.replace("DEVICE", device).replace("SHARES", shares).replace("SPEED", speed))
    return path


def spec_of(path):
    return load_manifest(path)[0].spec


def run_of(folder, costs, **owned):
    """Write what a run leaves that had these costs, and rows with these units; return what simulate reads of it."""
    row = {"fixedSeconds": 0.02, "unitSeconds": 0.0, "waitSeconds": 0.03, "heads": 1, "hiddenUnits": 3, **owned}
    body = asdict(costs)
    if not owned:  # an earlier version
        del body["unit_move"]["vocab_bytes"]
    (folder / "cost_calibration.json").write_text(json.dumps(body))
    (folder / "status.json").write_text(json.dumps({"ranks": [row] * costs.ranks}))
    return machine_of(spec_of(manifest(folder, device="{type: cpu}")), None, folder)
