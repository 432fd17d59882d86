"""Random manifests: a verdict in one line, never a traceback; what the models accept, the CRDs' schemas accept too.

HETEROTP_FUZZ_EXAMPLES=10000 draws so many examples for each test, `--hypothesis-profile=search` others in every run.
"""

import json
import os

import pytest
from click.testing import CliRunner
from heterotp_api.load import ManifestError, load_manifest
from heterotp_cli.errors import BadInput
from heterotp_cli.main import group
from heterotp_cli.run_command import read_manifest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft4Validator  # of a boolean exclusiveMinimum, as in structural schemas
from support import damaged_manifests
from support.damaged_manifests import VALUES, damaged

EXAMPLES = int(os.environ.get("HETEROTP_FUZZ_EXAMPLES", "150"))
fuzzed = settings(max_examples=EXAMPLES)
SCHEMAS = {kind: Draft4Validator(schema) for kind, schema in damaged_manifests.SCHEMAS.items()}
MARKS = [
    "&a ",
    "*a",
    "<<: ",
    "{",
    "}",
    "[",
    "]",
    ", ",
    ": ",
    "- ",
    "\n",
    "\n  ",
    "? ",
    "!!int ",
    "!!map ",
    "!x ",
    "'",
    '"',
]
MORE_MARKS = [
    "|\n",
    ">-\n",
    "---\n",
    "...\n",
    "%TAG ! x\n",
    "#",
    "a",
    "1",
    "0x",
    "1:10",
    ".inf",
    "~",
    "yes",
    "=",
    "\t",
    "\\",
]
WORDS = ["kind", "HeteroTPJob", "spec", "metadata", "apiVersion: heterotp.io/v1alpha1\n", "é", "\u2028", "\ufeff"]
TOKENS = st.sampled_from([*MARKS, *MORE_MARKS, *WORDS])


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "job.yaml"


def judge(file, text):
    """Return the accepted objects; a refusal of `validate` and of `run` is one line and exit code 2."""
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    result = CliRunner().invoke(group, ["validate", str(file)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert result.exit_code in (0, 2)
    if result.exit_code == 2:
        assert result.stderr.startswith(f"{file}: ") and result.stderr.count("\n") == 1
    try:
        read_manifest(file)
    except BadInput as error:
        assert str(error).startswith(f"{file}: ")
    try:
        return load_manifest(file)
    except ManifestError:
        return []


@fuzzed
@given(text=st.text(max_size=200) | st.lists(TOKENS, max_size=40).map("".join))
def test_any_text_is_judged(file, text):
    assert judge(file, text) == []


@fuzzed
@given(value=VALUES)
def test_any_value_is_judged(file, value):
    assert judge(file, json.dumps(value)) == []


@fuzzed
@given(body=damaged())
def test_a_damaged_manifest_is_judged_and_not_accepted_beyond_the_schema(file, body):
    for accepted in judge(file, json.dumps(body)):
        wrong = next(SCHEMAS[accepted.kind].iter_errors(accepted.dump()), None)
        assert wrong is None, f"{list(wrong.path)}: {wrong.message}"
