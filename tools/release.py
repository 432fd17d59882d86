"""`make release`: everything that a release publishes, made and tried in dist/. Nothing is published.

release.py yes|no: with images or without. The version is the one of pyproject.toml; the chart, its images and the
documentation are compared with it. Refused: uncommitted changes, a version that is tagged already or has no section in
CHANGELOG.md, and a place with another version.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
CHART = Path("charts") / "heterotp"
IMAGES = ("operator", "trainer", "trainer-hf", "trainer-cuda")
BUILT = ("operator", "trainer")  # images that are built here; the others need other base images
SUMS = "SHA256SUMS"
MANIFEST = "examples/demo.yaml"
NO_EXTRA = ("heterotp_api", "heterotp_cli")
EXTRAS = {  # what each extra is for: these imports must work with it
    "operator": ("heterotp_operator.handlers", "heterotp_operator.server"),
    "cli": ("heterotp_cli.plugin", "heterotp_cli.picture", "heterotp_dashboards.generate"),
    "trainer": ("heterotp", "heterotp_trainer.run_rank", "heterotp_trainer.session"),
    "hf": ("transformers", "datasets", "tokenizers"),
}


class Refused(Exception):
    """There can be no release of this state; the message says what to do."""


# -- what is to be released -----------------------------------------------------------------------------------


def version_of(root: Path) -> str:
    """Return the version of the project."""
    return str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])


def notes_of(changelog: str, version: str) -> str:
    """Return the section of a version, without its heading. Raises Refused."""
    heading = rf"^## {re.escape(version)}(?: [^\n]*)?$"
    found = re.search(rf"{heading}\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None or not found[1].strip():
        raise Refused(f"CHANGELOG.md has no section `## {version}`: write it")
    return found[1].strip() + "\n"


def is_dated(changelog: str, version: str) -> bool:
    """Return whether the section of a version has its date."""
    return re.search(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", changelog, re.MULTILINE) is not None


def other_versions(root: Path, version: str) -> list[str]:
    """Return the places that have another version than the project, each as `place: version`."""
    chart = yaml.safe_load((root / CHART / "Chart.yaml").read_text())
    found = [(f"{CHART}/Chart.yaml {field}", str(chart[field])) for field in ("version", "appVersion")]
    for image in yaml.safe_load(chart["annotations"]["artifacthub.io/images"]):
        found.append((f"{CHART}/Chart.yaml image {image['name']}", image["image"].rpartition(":")[2]))
    page = (root / "docs" / "install.md").read_text()
    found += [("docs/install.md", tag) for tag in re.findall(r"REGISTRY/heterotp/\w+:(\d+\.\d+\.\d+)", page)]
    return [f"{place}: {given}" for place, given in found if given != version]


def check(root: Path, version: str) -> None:
    """Raise Refused where this state of the project cannot be released as this version."""
    if git(root, "status", "--porcelain"):
        raise Refused("there are uncommitted changes: commit them, a release is of a commit")
    if git(root, "tag", "--list", f"v{version}"):
        raise Refused(f"the tag v{version} exists: give pyproject.toml a new version")
    if others := other_versions(root, version):
        raise Refused(f"pyproject.toml has version {version}, but {'; '.join(others)}")


# -- programs -------------------------------------------------------------------------------------------------


def git(root: Path, *arguments: str) -> str:
    """Return what git prints."""
    return subprocess.run(["git", "-C", root, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def call(*command: str | Path, cwd: Path = ROOT, **env: str) -> str:
    """Run a program and return its output; its errors are shown. Raises CalledProcessError."""
    environment = {**os.environ, **env}
    return subprocess.run(command, check=True, cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True).stdout


def uv(*arguments: str | Path, **how: str) -> str:
    """Run the uv of this environment."""
    return call(Path(sys.executable).with_name("uv"), *arguments, "--quiet", **how)


# -- what is made ---------------------------------------------------------------------------------------------


def packages(dist: Path, version: str) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it; return wheel and sdist. Their times are those of the commit."""
    when = git(ROOT, "log", "-1", "--format=%ct")
    uv("build", "--no-build-isolation", "--python", sys.executable, "--out-dir", dist, ROOT, SOURCE_DATE_EPOCH=when)
    (dist / ".gitignore").unlink(missing_ok=True)  # uv's
    return dist / f"heterotp-{version}-py3-none-any.whl", dist / f"heterotp-{version}.tar.gz"


def try_package(file: Path, version: str, extras: tuple[str, ...] = ()) -> None:
    """Install a package into an empty environment and run it there, outside of the checkout."""
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "environment"
        shutil.copy(ROOT / MANIFEST, folder)
        uv("venv", "--python", sys.executable, environment)
        wanted = f"heterotp[{','.join(extras)}] @ {file.as_uri()}"
        pins = ("--constraint", ROOT / "requirements.lock")
        uv("pip", "install", "--python", environment / "bin" / "python", *pins, wanted)
        here = {"cwd": Path(folder)}
        told = call(environment / "bin" / "heterotp", "--version", **here)
        if version not in told.split():
            raise Refused(f"{file.name}: `heterotp --version` prints {told.strip()}")
        call(environment / "bin" / "heterotp", "validate", Path(MANIFEST).name, **here)
        modules = [*NO_EXTRA, *(module for extra in extras for module in EXTRAS[extra])]
        call(environment / "bin" / "python", "-c", f"import {', '.join(modules)}", **here)
        if "cli" in extras:
            call(environment / "bin" / "kubectl-heterotp", "--help", **here)


def chart(dist: Path, version: str, helm: Path) -> Path:
    """Package the chart, and render the package; return its file."""
    folder = dist / "chart"
    call(helm, "lint", "--strict", ROOT / CHART)
    call(helm, "package", ROOT / CHART, "--destination", folder)
    file = folder / f"heterotp-{version}.tgz"
    call(helm, "template", "heterotp", file, "--namespace", "heterotp-system")
    return file


def images(dist: Path, version: str, build: bool) -> None:
    """Build images, or none, and write an SBOM of each: of what is in it, or of what its locks install."""
    if not build:
        for target in IMAGES:
            call("tools/sbom.sh", target, version, "locks", SBOM_DIR=str(dist / "sbom"))
        return
    call("tools/cluster/build-images.sh", TAG=version, TARGETS=" ".join(BUILT), SBOM_DIR=str(dist / "sbom"))
    docker = os.environ.get("DOCKER", "docker")
    ids = {
        target: call(docker, "image", "inspect", "-f", "{{.Id}}", f"heterotp/{target}:{version}") for target in BUILT
    }
    (dist / "images.txt").write_text("".join(f"heterotp/{each}:{version} {ids[each].strip()}\n" for each in BUILT))


def sums(dist: Path) -> dict[str, str]:
    """Write SHA256SUMS of all files in dist; return digests by name."""
    files = sorted(path for path in dist.rglob("*") if path.is_file() and path.name != SUMS)
    found = {str(path.relative_to(dist)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    (dist / SUMS).write_text("".join(f"{digest}  {name}\n" for name, digest in found.items()))
    return found


def steps(build_images: bool) -> Iterator[str]:
    """Make and try everything; yield what is done next."""
    version, changelog = version_of(ROOT), (ROOT / "CHANGELOG.md").read_text()
    check(ROOT, version)
    notes = notes_of(changelog, version)
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir()
    (dist / "RELEASE_NOTES.md").write_text(notes)
    yield f"heterotp {version}: wheel and sdist"
    wheel, sdist = packages(dist, version)
    yield f"{wheel.name} and {sdist.name}, each in an empty environment"
    try_package(wheel, version)
    try_package(sdist, version)
    yield f"{wheel.name} with the extras {', '.join(EXTRAS)}"
    try_package(wheel, version, tuple(EXTRAS))
    yield "the chart"
    chart(dist, version, Path(call("tools/cluster/ensure.sh", "bin").strip()) / "helm")
    yield "images and SBOMs" if build_images else "SBOMs; no images"
    images(dist, version, build_images)
    yield "checksums"
    for name, digest in sums(dist).items():
        print(f"  {digest[:12]}  {name}")
    if not is_dated(changelog, version):
        yield f"before the tag v{version}: give the section of CHANGELOG.md its date, and run this again"


def main() -> int:
    """Make the release; return the exit code."""
    if sys.argv[1:] not in (["yes"], ["no"]):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        for step in steps(sys.argv[1] == "yes"):
            print(f"release: {step}", flush=True)
    except Refused as refused:
        print(f"release: refused: {refused}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as failed:
        print(f"release: failed: {' '.join(map(str, failed.cmd))}: exit code {failed.returncode}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
