"""Durations and ratios as people write and read them."""

import pytest
from heterotp_cli.verbs.formatting import duration, parse_duration, ratio, seconds_since, times


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10m", 600), ("90s", 90), ("1h30m", 5400), ("45", 45), ("2.5", 2.5), ("1d", 86400), (" 1.5h ", 5400)],
)
def test_durations_are_read(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0s", "-5", "10x", "m", "1h30", "ten", "1e3", "nan", "9" * 400])
def test_an_invalid_duration_is_refused(text):
    with pytest.raises(ValueError, match=r"^must be longer than 0, e\.g\. 10m, 90s, 1h30m or plain seconds$"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.04, "0.0 s"),
        (4.24, "4.2 s"),
        (4, "4 s"),
        (9.96, "10 s"),
        (119.4, "119 s"),
        (119.6, "2 min"),
        (731, "12 min"),
        (3590, "1 h"),
        (3900, "1 h 5 min"),
        (86400, "1 d"),
        (266400, "3 d 2 h"),
    ],
)
def test_durations_as_text(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(None, "-"), (4.04, "4.0x"), (250, "250x"), (1000, "1000x")])
def test_ratios_as_text(value, text):
    assert ratio(value) == text


def test_times_as_text():
    assert (times(2.34), times(250.2)) == ("2.3 times", "250 times")


def test_seconds_since_a_time_of_the_api():
    assert seconds_since("2026-01-01T00:00:00Z", 1767225600.0 + 5) == 5
    assert seconds_since("2026-01-01T00:00:00Z", 0.0) == 0  # a clock that is behind
    assert seconds_since(None, 5.0) is None
    assert seconds_since("soon", 5.0) is None
