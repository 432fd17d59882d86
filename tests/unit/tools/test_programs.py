"""A program that tests need and that is missing is one line before the first test, and no hundred failures."""

import os
import subprocess
import sys

import pytest
from support import chromium, programs, promtool, rendered_chart
from support.places import ROOT
from support.programs import markers, missing

CHART_TEST = "tests/unit/chart/test_chart_notes.py"


def pytest_run(*arguments, **environ):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **environ}, capture_output=True, text=True)


def test_without_helm_a_run_of_the_charts_tests_is_one_line(tmp_path):
    done = pytest_run(CHART_TEST, CLUSTER_DIR=str(tmp_path))
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert done.stderr.strip() == (
        f"ERROR: missing in {tmp_path}/bin: helm; `tools/cluster/ensure.sh programs` builds them with Go"
    )
    assert "no tests ran" in done.stdout


def test_what_needs_no_helm_runs_without(tmp_path):
    done = pytest_run(CHART_TEST, "-m", "not helm", CLUSTER_DIR=str(tmp_path))
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, done.stderr


def test_tests_have_the_markers_of_their_folder_and_of_their_helpers():
    chart, rules = ROOT / CHART_TEST, ROOT / "tests" / "integration" / "dashboards" / "test_any.py"
    assert markers(chart, rendered_chart) == {"unit", "helm"}
    assert markers(rules, promtool) == {"integration", "prometheus"}
    assert markers(ROOT / "tests" / "unit" / "cli" / "test_page.py", chromium) == {"unit", "browser"}
    assert markers(ROOT / "tests" / "unit" / "api" / "test_ranks.py", pytest) == {"unit"}


def test_each_cluster_is_asked_for_by_name(monkeypatch):
    monkeypatch.delenv("HETEROTP_KIND_KUBECONFIG", raising=False)
    monkeypatch.delenv("HETEROTP_KUEUE_KUBECONFIG", raising=False)
    assert "HETEROTP_KIND_KUBECONFIG names no file; run `make test`" in missing(["e2e"])
    assert "HETEROTP_KUEUE_KUBECONFIG names no file; run `make test-kueue`" in missing(["kueue"])
    assert missing(["unit", "distributed"]) == ""


def test_gang_schedulers_are_asked_for_by_their_own_command(monkeypatch, tmp_path):
    monkeypatch.setattr(programs, "BIN", tmp_path)
    assert "volcano-controller; `make test-gangs` builds them" in missing(["gangs"])
