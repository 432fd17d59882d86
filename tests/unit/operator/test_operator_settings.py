"""The operator's settings come from the environment, and a bad value is named."""

import pytest
from heterotp_operator.settings import Settings, from_environment


def test_defaults():
    settings = from_environment({})
    assert (settings.namespaces, settings.workers, settings.api_requests_per_second) == ((), 24, 200)
    assert (settings.lease_seconds, settings.lease_renew_deadline_seconds, settings.lease_retry_seconds) == (15, 10, 2)
    assert settings.poll_seconds == 5


def test_values_are_read_in_their_types_and_empty_means_default():
    given = {
        "HETEROTP_NAMESPACES": "a, b,",
        "HETEROTP_WORKERS": "3",
        "HETEROTP_POLL_SECONDS": "0.5",
        "HETEROTP_TRAINER_IMAGE": "mine:1",
        "HETEROTP_IDENTITY": "",
        "HETEROTP_LEASE_NAMESPACE": "system",
    }
    settings = from_environment(given)
    assert settings.namespaces == ("a", "b")
    assert (settings.workers, settings.poll_seconds, settings.trainer_image) == (3, 0.5, "mine:1")
    assert settings.lease_namespace == "system"
    assert settings.identity


def test_two_processes_have_two_identities():
    assert Settings().identity != Settings().identity


@pytest.mark.parametrize(
    ("variable", "value", "text"),
    [
        ("HETEROTP_WORKERS", "many", "HETEROTP_WORKERS: 'many' is not a whole number"),
        ("HETEROTP_POLL_SECONDS", "x", "HETEROTP_POLL_SECONDS: 'x' is not a number"),
        ("HETEROTP_WORKERS", "0", "HETEROTP_WORKERS: 0 is not greater than 0"),
        ("HETEROTP_LOG_LEVEL", "debug", "HETEROTP_LOG_LEVEL: 'debug' is none of DEBUG, INFO, WARNING, ERROR"),
        ("HETEROTP_INJECTIONS", "no", "HETEROTP_INJECTIONS: 'no' is none of on, off"),
        ("HETEROTP_NETWORK_PEERS", "[", "HETEROTP_NETWORK_PEERS: "),
        ("HETEROTP_NETWORK_PEERS", "{}", "HETEROTP_NETWORK_PEERS: operator: is required"),
        ("HETEROTP_NETWORK_PEERS", '{"operator": []}', "HETEROTP_NETWORK_PEERS: operator: "),
        ("HETEROTP_NETWORK_PEERS", '{"operator": [{}]}', "HETEROTP_NETWORK_PEERS: operator"),
        ("HETEROTP_NETWORK_PEERS", '{"operator": [{"a": 1}], "scraper": []}', "scraper: is not a known field"),
        ("HETEROTP_LEASE_SECONDS", "5", "does not hold: 2.0, 10.0, 5.0"),
    ],
)
def test_bad_values_are_refused_by_name(variable, value, text):
    with pytest.raises(ValueError, match=r"HETEROTP_") as error:
        from_environment({variable: value})
    assert text in str(error.value)
    assert "\n" not in str(error.value)
