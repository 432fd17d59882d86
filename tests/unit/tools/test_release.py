"""`make release`: which states it refuses, and what it writes down. What it builds is tried by the command itself."""

import hashlib
import shutil
import subprocess

import pytest
import release
from support.places import ROOT

VERSION = release.version_of(ROOT)
PLACES = ("pyproject.toml", "CHANGELOG.md", "charts/heterotp/Chart.yaml", "docs/install.md")


def test_every_place_of_the_project_has_its_version():
    assert release.other_versions(ROOT, VERSION) == []
    assert release.notes_of((ROOT / "CHANGELOG.md").read_text(), VERSION)


def git(folder, *arguments):
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path):
    """A committed copy of the files that hold the version."""
    for place in PLACES:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / place, tmp_path / place)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "all")
    return tmp_path


def edit(project, place, old, new):
    path = project / place
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    git(project, "commit", "-qam", "edited")


def test_a_clean_commit_is_taken(project):
    release.check(project, VERSION)


def test_uncommitted_changes_are_refused(project):
    (project / "new.txt").write_text("new")
    with pytest.raises(release.Refused, match="uncommitted changes"):
        release.check(project, VERSION)


def test_a_version_that_is_tagged_is_refused(project):
    git(project, "tag", f"v{VERSION}")
    with pytest.raises(release.Refused, match=f"the tag v{VERSION} exists"):
        release.check(project, VERSION)


OTHERS = {
    "charts/heterotp/Chart.yaml version": ("charts/heterotp/Chart.yaml", f"\nversion: {VERSION}", "\nversion: 9.9.9"),
    "charts/heterotp/Chart.yaml appVersion": (
        "charts/heterotp/Chart.yaml",
        f"appVersion: {VERSION}",
        "appVersion: 9.9.9",
    ),
    "charts/heterotp/Chart.yaml image operator": (
        "charts/heterotp/Chart.yaml",
        f"heterotp/operator:{VERSION}",
        "heterotp/operator:9.9.9",
    ),
    "docs/install.md": ("docs/install.md", f"heterotp/operator:{VERSION}", "heterotp/operator:9.9.9"),
}


@pytest.mark.parametrize("place", OTHERS)
def test_a_place_with_another_version_is_refused_by_name(project, place):
    edit(project, *OTHERS[place])
    with pytest.raises(release.Refused, match=f"pyproject.toml has version {VERSION}, but {place}: 9.9.9"):
        release.check(project, VERSION)


CHANGES = "# Changelog\n\n## 2.0.0 (2030-01-02)\n\n### Added\n- much\n\n## 1.0.0 (unreleased)\n- little\n\n## 0.5.0\n"


@pytest.mark.parametrize(("version", "notes"), [("2.0.0", "### Added\n- much\n"), ("1.0.0", "- little\n")])
def test_notes_are_the_section_of_the_version(version, notes):
    assert release.notes_of(CHANGES, version) == notes
    assert release.is_dated(CHANGES, version) == (version == "2.0.0")


@pytest.mark.parametrize("version", ["3.0.0", "2.0", "0.5.0"])
def test_a_version_without_a_section_is_refused(version):
    with pytest.raises(release.Refused, match=f"no section `## {version}`"):
        release.notes_of(CHANGES, version)


def test_checksums_are_of_every_file_and_can_be_checked(tmp_path):
    (tmp_path / "sbom").mkdir()
    (tmp_path / "sbom" / "a.json").write_text("{}")
    (tmp_path / "b.whl").write_text("b")
    found = release.sums(tmp_path)
    assert found == {"b.whl": hashlib.sha256(b"b").hexdigest(), "sbom/a.json": hashlib.sha256(b"{}").hexdigest()}
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path, check=True, capture_output=True)
    assert release.sums(tmp_path) == found  # the list of checksums is not in itself
