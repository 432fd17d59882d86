"""Common to all tests: markers of what a test needs, repeatable drawing of examples, Ctrl-C for child processes."""

import signal

import pytest
from hypothesis import HealthCheck, settings
from support import programs

# no time limits: the machine may be busy. `--hypothesis-profile=search` draws other examples in every run.
settings.register_profile("suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", settings.get_profile("suite"), derandomize=False)
settings.load_profile("suite")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell ignores SIGINT for what it runs in the background, and processes that tests start would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before -m chooses by markers
def pytest_collection_modifyitems(items):
    for item in items:
        for marker in programs.markers(item.path, item.module):
            item.add_marker(marker)


def pytest_collection_finish(session):
    if session.config.option.collectonly:
        return
    needed = {marker.name for item in session.items for marker in item.iter_markers()}
    if found := programs.missing(needed):
        raise pytest.UsageError(found)
