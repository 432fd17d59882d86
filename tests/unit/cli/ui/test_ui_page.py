"""The live page in a real Chromium: news appear, buttons change the run, the end is told, keyboard and dark mode."""

import json
import re
import threading
from contextlib import contextmanager

import pytest
from heterotp_cli.run_lock import lock
from heterotp_cli.workdir import write_json
from support.chromium import chromium
from support.cli_process import cli_process
from support.played_run import Run, append_history, history_entry

HOSTILE = "<img src=x onerror=\"document.title='taken'\">"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """One Chromium for all tests of this file."""
    with chromium(tmp_path_factory.mktemp("chromium") / "profile") as tab:
        yield tab


@pytest.fixture
def alive(tmp_path):
    """A live run and its lock, which ends with it."""
    place = tmp_path / "demo"
    place.mkdir()
    with lock(place) as handle:
        run = Run(place)
        append_history(place, *(history_entry(i) for i in range(1, 4)))
        run.report(iteration=3)
        yield run, handle


@contextmanager
def served(run):
    """Give the address of a run's page, served by the command."""
    with cli_process("ui", run.place) as process:
        yield process.stdout.readline().split()[-1]


def test_news_appear_and_so_does_the_end(alive, browser):
    run, handle = alive
    with served(run) as address:
        tab = browser()
        tab.open(address)
        assert (tab.text("h1"), tab.text("#state")) == ("demo: running", "live")
        assert tab.value("run.iteration.length") == 3
        slow = history_entry(4)
        slow["ranks"][2] |= {"chi": 4.0, "matmul": 0.4}
        append_history(run.place, slow)
        made = {"attempt": 1, "iteration": 4, "time": "2026-01-01T00:00:00Z", "decisionId": 1, "strategy": "AUTO"}
        write_json(run.place / "journal.json", {"decisions": [{**made, "cause": "x", "reason": HOSTILE}]})
        run.report(iteration=4, reason=HOSTILE)
        tab.until("run.iteration.at(-1) === 4 && document.querySelector('#facts').textContent.includes('4 iterations')")
        assert tab.value("document.querySelector('#ranks tbody').rows[2].cells[3].textContent") == "4.00x"
        tab.until("document.querySelector('#decisions').textContent.includes('onerror')")
        assert tab.value("charts.get(at('time')).data[0].length") == 4
        assert red(tab.value("[...cells.getContext('2d').getImageData(3, 2, 1, 1).data]"))
        assert tab.value("document.title") == "demo - HeteroTP"
        run.report(state="succeeded")
        handle.close()
        tab.until("document.querySelector('#state').textContent === 'the run has ended: succeeded'")
        assert tab.value("document.querySelector('#controls').hidden") is True
    tab.until("newest < Date.now() - 1500")  # the server is gone: what was last seen stays
    assert tab.text("h1") == "demo: succeeded"
    assert tab.text("#state") == "the run has ended: succeeded"
    assert of_the_page(tab.problems) == []


def red(pixel):
    return pixel[0] > 150 > pixel[2]


def of_the_page(problems):
    """Return errors but those of a server that has ended."""
    return [each for each in problems if (each.get("entry") or {}).get("source") != "network"]


def test_a_server_that_is_lost_is_told(alive, browser):
    run, _ = alive
    tab = browser()
    with served(run) as address:
        tab.open(address)
    tab.until("document.querySelector('#state').textContent.startsWith('no answer')")
    assert tab.value("document.querySelector('#controls').hidden") is True
    assert tab.value("run.iteration.length") == 3


def test_another_address_is_refused(alive, browser):
    run, _ = alive
    with served(run) as address:
        tab = browser()
        tab.call("Page.navigate", url=re.sub("/[^/]+/$", "/wrong-token/", address))
        tab.until("document.body && document.body.innerText.includes('lacks the token')")
        # a page of another origin, here of a file, gets nothing by scripts
        tab.call("Page.navigate", url="about:blank")
        tab.until("location.href === 'about:blank'")
        asked = f"fetch({json.dumps(address)} + 'data').then((answer) => answer.text(), () => 'refused')"
        assert tab.value(asked) == "refused"


def test_buttons_change_the_run_by_keyboard_alone(alive, browser):
    run, _ = alive
    with run.obeying(), served(run) as address:
        tab = browser()
        tab.open(address)
        assert tab.value("document.querySelector('#policy select').value") == "AUTO"  # what the run has
        focus(tab, "strategy")
        tab.value("document.activeElement.value = 'SEMI'; document.activeElement.dispatchEvent(new Event('change'))")
        tab.key("Tab")
        tab.call("Input.insertText", text="0.25")
        tab.key("Tab")
        assert tab.value("document.activeElement.textContent") == "Set policy"
        assert tab.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        tab.key("Enter", "\r")
        tab.until("document.querySelector('#answer').textContent.includes(': in force')")
        assert (run.control.balancing.strategy, run.control.balancing.max_pruned_share) == ("SEMI", 0.25)
        assert tab.value("document.activeElement.textContent") == "Set policy"  # the focus stays, also over updates
        focus(tab, "rank")
        tab.call("Input.insertText", text="2")
        tab.key("Enter", "\r")
        tab.until("document.querySelector('#answer').textContent.includes('slows rank 2')")
        assert ([2], 4.0) in run.injections.values()
        tab.value("document.querySelector('#stop').click()")
        tab.until("document.querySelector('#answer').textContent.includes('taken back')")
        assert len(run.injections) == 1
        focus(tab, "rank")
        tab.value("document.activeElement.value = ''")
        tab.call("Input.insertText", text="17")
        tab.key("Enter", "\r")
        tab.until("document.querySelector('#answer').textContent.startsWith('refused: ')")
        assert "--rank" in tab.text("#answer")


def focus(tab, name):
    tab.value(f"document.querySelector('[name={name}]').focus()")


def test_the_heat_map_is_read_by_keys_and_colours_follow_dark_mode(alive, browser):
    run, _ = alive
    (run.place / "history.jsonl").unlink()
    rows = [{"chi": 1.0, "blamed": 0.01}, {"chi": 2.0, "blamed": 0.03}, {}, {}]
    append_history(run.place, *(history_entry(i, ranks=rows) for i in (1, 2)))
    with served(run) as address:
        tab = browser()
        tab.open(address)
        tab.value("document.querySelector('#heat').focus()")
        tab.key("ArrowDown")
        tab.key("ArrowRight")
        assert tab.text("#cell").startswith("rank 1, iteration 2: ")
        ground, cell = (
            "getComputedStyle(document.body).backgroundColor",
            "[...cells.getContext('2d').getImageData(0, 0, 1, 1).data]",
        )
        tab.value(
            "document.querySelector('#colour').value = 'lost';"
            "document.querySelector('#colour').dispatchEvent(new Event('change'))"
        )
        assert (tab.text("#cell"), tab.text("#scale")[:4]) == ("rank 1, iteration 2: 25.0 %", "0 %1")
        light = tab.value(ground), tab.value(cell)
        tab.dark(True)
        tab.until(f"{ground} === 'rgb(21, 24, 28)'")
        tab.until(f"JSON.stringify({cell}) !== {json.dumps(json.dumps(light[1]).replace(' ', ''))}")


def test_1024_ranks_stay_fluid(tmp_path, browser):
    place, ranks = tmp_path / "many", 1024
    place.mkdir()
    with lock(place):
        run = Run(place, [{"name": "all", "pods": 128, "processesPerPod": 8}])
        append_history(place, *(history_entry(i, ranks) for i in range(1, 151)))
        stop = threading.Event()

        def train():
            number = 150
            while not stop.wait(0.1):
                number += 1
                append_history(place, history_entry(number, ranks))
                run.report(iteration=number)

        thread = threading.Thread(target=train)
        with served(run) as address:
            tab = browser()
            tab.open(address)
            assert tab.text("#shown") == "1-50 of 1024"
            tab.value("document.querySelector('#next').click()")
            assert tab.text("#shown") == "51-100 of 1024"
            thread.start()
            try:
                tab.until("run.iteration.at(-1) > 155")
            finally:
                stop.set()
                thread.join()
            assert tab.text("#shown") == "51-100 of 1024"  # an update turns no page
            assert tab.value("run.chi.length") == ranks
            assert tab.value("document.querySelectorAll('*').length") < 3000
