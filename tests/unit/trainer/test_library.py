"""`import heterotp`: the library's few names, and torch only once one of them is used."""

import ast
import subprocess
import sys
from pathlib import Path

import heterotp
import pytest
from heterotp_trainer.devices.phase_clock import phase
from heterotp_trainer.run_rank import run_rank
from heterotp_trainer.session import Session


def test_the_library_offers_what_a_training_script_needs():
    assert (heterotp.Session, heterotp.run_rank, heterotp.phase) == (Session, run_rank, phase)
    assert set(heterotp.__all__) <= set(dir(heterotp))


def test_type_checkers_see_the_names_that_there_are():
    imports = [node for node in ast.walk(ast.parse(Path(heterotp.__file__).read_text())) if hasattr(node, "names")]
    typed = {alias.name: node.module for node in imports for alias in node.names if "heterotp_trainer" in node.module}
    assert typed == {name: module for section in heterotp.SECTIONS.values() for name, module in section.items()}
    assert [name for name in heterotp.__all__ if getattr(heterotp, name).__name__ != name] == []


def test_importing_the_library_imports_nothing_heavy():
    code = "import sys, heterotp; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "heterotp" in loaded
    assert {"torch", "pydantic", "heterotp_trainer"}.isdisjoint(loaded)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(
        AttributeError, match=r"module 'heterotp' has no attribute 'Sesion'; it has run_rank, Session, Directive, "
    ):
        heterotp.Sesion  # noqa: B018
