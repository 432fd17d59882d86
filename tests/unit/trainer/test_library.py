"""`import heterotp`: the library's few names, and torch only once one of them is used."""

import subprocess
import sys

import heterotp
import pytest
from heterotp_trainer.devices.phase_clock import phase
from heterotp_trainer.run_rank import run_rank
from heterotp_trainer.session import Session


def test_the_library_offers_what_a_training_script_needs():
    assert (heterotp.Session, heterotp.run_rank, heterotp.phase) == (Session, run_rank, phase)
    assert set(heterotp.__all__) <= set(dir(heterotp))


@pytest.mark.parametrize("forbidden", ["torch", "pydantic", "heterotp_trainer"])
def test_importing_the_library_imports_nothing_heavy(forbidden):
    code = f"import sys, heterotp; sys.exit({forbidden!r} in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(
        AttributeError, match=r"module 'heterotp' has no attribute 'Sesion'; it has Session, phase, run_rank"
    ):
        heterotp.Sesion  # noqa: B018
