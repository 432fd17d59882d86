"""The pages agree with the programs: commands, make targets, files, settings, messages."""

import os
import re
import shlex
import subprocess
from dataclasses import fields
from pathlib import PurePath

from click.testing import CliRunner
from heterotp_cli.main import group as heterotp
from heterotp_cli.plugin import group as kubectl_heterotp
from heterotp_operator.settings import Settings
from support.pages import DOCS, OUTSIDE, PROSE, each_of, shell_lines
from support.places import BIN, ROOT

ENSURE = ROOT / "tools" / "cluster" / "ensure.sh"
UNSET = "-"  # the table of settings shows no default like this


# -- commands ----------------------------------------------------------------------------------------------------


def ours(line):
    """Return click group and arguments of a command of the project, None for other commands."""
    if "heterotp" not in line:  # a line is cut at pipes, also at those inside of a jq program's quotes
        return None
    words = [word for word in shlex.split(line, comments=True) if word not in ("&", ">")]
    words = words[next((n for n, word in enumerate(words) if "=" not in word.split("/")[0]), 0) :]
    if words[:2] == ["kubectl", "heterotp"]:
        return kubectl_heterotp, words[2:]
    return (heterotp, words[1:]) if words and PurePath(words[0]).name == "heterotp" else None


@each_of(PROSE)
def test_commands_exist_as_they_are_written(page):
    for line in shell_lines(page):
        if (found := ours(line)) is not None:
            group, arguments = found
            done = CliRunner().invoke(
                group, [*arguments, "--help"]
            )  # click refuses unknown options before it prints help
            assert done.exit_code == 0, f"{line}: {done.output}"


def test_the_first_ten_minutes_have_commands_of_both_programs():
    found = [ours(line)[0] for line in shell_lines(DOCS / "first-ten-minutes.md") if ours(line)]
    assert found.count(heterotp) >= 5
    assert found.count(kubectl_heterotp) >= 2


@each_of([*PROSE, *OUTSIDE])
def test_commands_stay_in_the_root_of_the_checkout(page):
    """Otherwise the next command of the page, e.g. `make`, would fail."""
    assert [line for line in shell_lines(page) if line.startswith("cd ")] == []


@each_of([*PROSE, *OUTSIDE])
def test_helm_is_told_release_and_namespace(page):
    """Without the namespace, helm searches the release in the current namespace of the kubeconfig."""
    text = page.read_text().replace("\\\n", " ")
    calls = re.findall(r"\bhelm (?:install|upgrade|rollback|test|uninstall) \w[^`\n]*", text)
    assert [call for call in calls if not re.search(r" (--namespace|-n) \S", call)] == []


def test_the_pages_have_calls_of_helm():
    text = "\n".join(page.read_text() for page in [*PROSE, *OUTSIDE])
    verbs = set(re.findall(r"\bhelm (\w+) heterotp\b", text))
    assert verbs >= {"install", "upgrade", "rollback", "test"}


# -- make targets, scripts, files ----------------------------------------------------------------------------------


@each_of(PROSE)
def test_make_targets_and_files_exist(page):
    text = page.read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = [line.split("#")[0].split()[1:] for line in shell_lines(page) if line.startswith("make ")]
    named += [[word] for word in re.findall(r"`make ([a-z-]+)`", text)]
    assert [target for line in named for target in line if target not in targets] == []
    paths = re.findall(r"\b((?:examples|charts|tools|benchmarks)/[\w./-]+\w)", text)
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_what_is_asked_of_the_clusters_script_is_known_to_it():
    asked = {word for page in [*PROSE, *OUTSIDE] for word in re.findall(r"ensure\.sh (\w+)", page.read_text())}
    assert asked == {"bin", "kubeconfig"}
    assert asked <= set(re.findall(r"^(\w+)\)", ENSURE.read_text(), flags=re.MULTILINE))


def test_the_clusters_script_prints_where_its_programs_are():
    done = subprocess.run([ENSURE, "bin"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{BIN}\n"), done.stderr


def test_a_path_with_the_clusters_programs_is_not_taken_for_the_machines_own():
    """Docker's client is searched in HOST_PATH and linked among our programs: the link must not point to itself."""
    own = os.environ["PATH"].replace(f"{BIN}:", "")
    environment = {name: value for name, value in os.environ.items() if name != "HOST_PATH"}
    command = ["bash", "-c", f'. "{ENSURE.parent}/lib.sh"; echo "$HOST_PATH"']
    done = subprocess.run(command, env={**environment, "PATH": f"{BIN}:{own}"}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{own}\n"), done.stderr


# -- settings and messages -----------------------------------------------------------------------------------------


def test_settings_of_the_operator_are_told_with_their_defaults():
    text = (DOCS / "operating.md").read_text()
    documented = dict(re.findall(r"^\| `HETEROTP_(\w+)` \| (\S+) \|", text, flags=re.MULTILINE))
    known = {field.name.upper(): field.default for field in fields(Settings)}
    assert {name: _shown(known[name]) for name in documented} == documented
    by_chart = {"TRAINER_IMAGE", "NAMESPACES", "LEASE_NAME"}
    own = {"IDENTITY", "LEASE_NAMESPACE", "METRICS_HOST"}  # determined by the process
    assert set(known) - set(documented) == by_chart | own


def _shown(default):
    if isinstance(default, float):
        return f"{default:g}"
    return UNSET if default in ("", None) else str(default)


def said_by_the_code():
    """Return the source of the programs with adjacent string literals joined."""
    files = [path for part in ("api", "operator", "trainer", "cli") for path in sorted((ROOT / part).rglob("*.py"))]
    files += sorted((ROOT / "charts" / "heterotp" / "templates").glob("*.yaml"))  # messages of admission policies
    text = "\n".join(path.read_text() for path in files)
    return re.sub(r"""(["'])\s*\n?\s*f?\1""", "", text)


def quoted():
    """Yield the messages that the FAQ quotes: code in the first column of its tables, … for variable parts."""
    for line in (DOCS / "faq.md").read_text().splitlines():
        if line.startswith("| "):
            yield from re.findall(r"`([^`]+)`", line.split(" | ")[0])


def test_messages_of_the_faq_are_those_of_the_code():
    strings = said_by_the_code()
    messages = list(quoted())
    assert len(messages) > 60
    parts = [part.strip(" '") for message in messages for part in re.split(r"…x?|: |; ", message)]
    assert [part for part in parts if len(part) > 3 and part not in strings] == []
