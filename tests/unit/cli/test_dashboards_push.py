"""`heterotp dashboards`: boards arrive once, changes by hand are safe, every mistake is one line.

What a Grafana must do runs on the stub, and on a real one too where GRAFANA_URL is set (with GRAFANA_TOKEN; the boards
and the folder `heterotp-test` there are deleted first). The rest needs a server that misbehaves.
"""

import json
import os
import socket

import pytest
import requests
import yaml
from click.testing import CliRunner
from heterotp_cli.dashboards_command import read_token
from heterotp_cli.errors import BadInput, Failed
from heterotp_cli.main import group
from heterotp_dashboards.boards import boards
from support.grafana_stub import READ_ONLY, TOKEN, GrafanaStub, StoredBoard

UIDS = [board["uid"] for board in boards()]
FOLDER = "heterotp-test"


class Server:
    """A Grafana to push to, with what tests do to it behind the command's back."""

    def __init__(self, url, token):
        self.url, self._token = url, token

    def call(self, method, path, **body):
        headers = {"Authorization": f"Bearer {self._token}"}
        return requests.request(method, f"{self.url}/api{path}", json=body or None, headers=headers, timeout=240)

    def board(self, uid):
        return self.call("GET", f"/dashboards/uid/{uid}").json()

    def edit(self, uid):
        """Change a board as a person does in the browser."""
        board = self.board(uid)
        content = {**board["dashboard"], "title": "Mine"}
        done = self.call(
            "POST",
            "/dashboards/db",
            dashboard=content,
            folderUid=board["meta"]["folderUid"],
            message="better",
            overwrite=True,
        )
        assert done.status_code == 200, done.text

    def clean(self):
        for uid in UIDS:
            self.call("DELETE", f"/dashboards/uid/{uid}")
        self.call("DELETE", f"/folders/{FOLDER}")
        assert self.call("POST", "/folders", uid=FOLDER, title=FOLDER).status_code == 200


@pytest.fixture(params=["stub", "real"] if os.environ.get("GRAFANA_URL") else ["stub"])
def server(request):
    if request.param == "real":
        server = Server(os.environ["GRAFANA_URL"].rstrip("/"), os.environ["GRAFANA_TOKEN"])
        server.clean()
        yield server
        return
    with GrafanaStub() as stub:
        stub.state.folders[FOLDER] = FOLDER
        yield Server(stub.url, TOKEN)


@pytest.fixture
def stub():
    with GrafanaStub() as stub:
        yield stub


def push(url, *arguments, token=TOKEN):
    """Run the command in this process; return its lines or the error that ends it."""
    environment = {"GRAFANA_TOKEN": token}
    result = CliRunner().invoke(group, ["dashboards", "push", "--grafana-url", url, *arguments], env=environment)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return result.exception
    return result.output.splitlines()


def pushed(server, *arguments):
    """Push to the server and return what became of each board."""
    lines = push(server.url, *arguments, token=server._token)
    assert isinstance(lines, list), lines
    return [line.partition(" heterotp-")[0] for line in lines]


# -- what any Grafana does ---------------------------------------------------------------------------------------


def test_the_second_push_changes_nothing(server):
    assert pushed(server) == ["created"] * 3
    versions = [server.board(uid)["dashboard"]["version"] for uid in UIDS]
    assert pushed(server) == ["unchanged"] * 3
    assert [server.board(uid)["dashboard"]["version"] for uid in UIDS] == versions


def test_boards_are_pushed_unchanged(server):
    pushed(server)
    for board in boards():
        stored = server.board(board["uid"])["dashboard"]
        assert [panel["title"] for panel in stored["panels"]] == [panel["title"] for panel in board["panels"]]


def test_a_board_of_an_older_version_is_updated_in_its_folder(server, monkeypatch):
    older = [{**board, "title": "Old"} for board in boards()]
    with monkeypatch.context() as patch:
        patch.setattr("heterotp_dashboards.boards.boards", lambda: older)
        assert pushed(server, "--folder", FOLDER) == ["created"] * 3
    assert pushed(server) == ["updated"] * 3
    updated = server.board(UIDS[0])
    assert updated["dashboard"]["title"] == boards()[0]["title"]
    assert updated["meta"]["folderUid"] == FOLDER, "a board stays where it is"


def test_a_change_by_hand_is_kept_and_then_no_board_is_written(server):
    pushed(server)
    server.edit(UIDS[1])
    refusal = push(server.url, token=server._token)
    assert isinstance(refusal, Failed)
    assert str(refusal) == f"{UIDS[1]}: changed by hand since the last push: --force overwrites the changes"
    assert server.board(UIDS[1])["dashboard"]["title"] == "Mine"


def test_force_overwrites_a_change_by_hand(server):
    pushed(server)
    server.edit(UIDS[1])
    assert pushed(server, "--force") == ["unchanged", "overwritten", "unchanged"]
    assert server.board(UIDS[1])["dashboard"]["title"] == boards()[1]["title"]
    assert pushed(server) == ["unchanged"] * 3


def test_boards_move_into_the_folder_that_is_named_and_stay_there(server):
    pushed(server)
    assert pushed(server, "--folder", FOLDER) == ["moved"] * 3
    assert server.board(UIDS[0])["meta"]["folderUid"] == FOLDER
    assert pushed(server) == ["unchanged"] * 3
    assert server.board(UIDS[0])["meta"]["folderUid"] == FOLDER


def test_a_missing_folder_is_an_error_with_advice(server):
    refusal = push(server.url, "--folder", "heterotp nowhere", token=server._token)
    assert isinstance(refusal, Failed)
    assert "--folder: 'heterotp nowhere': no such folder" in str(refusal) and "--create-folder" in str(refusal)


def test_a_wrong_token_is_one_line(server):
    refusal = push(server.url, token="glsa_wrong")
    assert isinstance(refusal, Failed)
    assert str(refusal).endswith("refuses the token (401): give one by --token-file or GRAFANA_TOKEN")


# -- what needs a server of a certain kind ----------------------------------------------------------------------


def test_a_folder_can_be_created(stub):
    push(stub.url, "--folder", "Team A", "--create-folder")
    assert list(stub.state.folders.values()) == ["Team A"]
    push(stub.url, "--folder", "Team A", "--create-folder")
    assert len(stub.state.folders) == 1
    assert {board.folder for board in stub.state.boards.values()} == set(stub.state.folders)


def test_two_folders_of_one_title_need_a_uid(stub):
    stub.state.folders.update(one="Team", two="Team")
    refusal = push(stub.url, "--folder", "Team")
    assert isinstance(refusal, BadInput) and "one, two" in str(refusal)
    push(stub.url, "--folder", "two")
    assert stub.state.boards[UIDS[0]].folder == "two"


def test_versions_as_grafana_11_lists_them(stub):
    stub.state.bare_version_list = True
    push(stub.url)
    assert stub.state.writes == 3
    push(stub.url)
    assert stub.state.writes == 3


def test_a_board_imported_by_hand_from_the_same_file_is_unchanged(stub):
    for board in boards():
        stub.state.boards[board["uid"]] = StoredBoard(board, "", ["Imported"])
    assert [line.split()[0] for line in push(stub.url)] == ["unchanged"] * 3
    assert stub.state.writes == 0


def test_provisioned_boards_are_left_alone(stub):
    stub.state.boards[UIDS[2]] = StoredBoard({"uid": UIDS[2], "title": "x"}, "", ["file"], provisioned=True)
    refusal = push(stub.url, "--force")
    assert isinstance(refusal, Failed) and str(refusal).startswith(f"{UIDS[2]}: comes from files")
    assert stub.state.writes == 0


def test_a_path_before_the_api_is_kept(stub):
    lines = push(f"{stub.url}/grafana")
    assert [line.split()[0] for line in lines] == ["created"] * 3
    assert lines[0] == f"created {UIDS[0]}: {stub.url}/grafana/d/{UIDS[0]}/{UIDS[0]}"


def test_a_board_changed_between_read_and_write_is_kept(stub):
    push(stub.url)
    from heterotp_cli import dashboards_push
    from heterotp_cli.grafana import Grafana

    grafana, old = Grafana(stub.url, TOKEN), boards()[0]
    seen = grafana.board(old["uid"])
    stub.state.boards[old["uid"]].messages.append("me first")
    with pytest.raises(Failed, match="saved at the same time by another user"):
        grafana.save(old, "", dashboards_push.message(old), seen)


ANSWERS = {
    "403": (403, b'{"message": "no"}', "answers 403: no: the token's service account needs the role Editor"),
    "500": (500, b'{"message": "database is locked"}', "answers 500: database is locked"),
    "502 of a proxy": (502, b"<html>bad gateway</html>", "does not answer as a Grafana does (502)"),
    "503 with null": (503, b"null", "does not answer as a Grafana does"),
    "a login page": (200, b"<html>sign in</html>", "does not answer as a Grafana does"),
    "an empty body": (200, b"", "does not answer as a Grafana does"),
    "another API": (200, b'{"status": "success"}', "does not answer as a Grafana does"),
    "another API's list": (200, b"[]", "does not answer as a Grafana does"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_unknown_answer_is_one_line(stub, name):
    status, body, words = ANSWERS[name]
    stub.state.broken = (status, body)
    refusal = push(stub.url)
    assert isinstance(refusal, Failed), refusal
    assert words in str(refusal) and "\n" not in str(refusal)


def test_a_read_only_token_is_one_line(stub):
    refusal = push(stub.url, token=READ_ONLY)
    assert isinstance(refusal, Failed) and "needs the role Editor" in str(refusal)


@pytest.mark.parametrize(("version", "good"), [("10.4.19", False), ("11.0.0", True), ("13.2.2", True), ("", True)])
def test_old_grafanas_are_refused(stub, version, good):
    stub.state.version = version
    result = push(stub.url)
    if good:
        assert len(result) == 3
    else:
        assert str(result) == f"{stub.url}/ is Grafana 10.4.19: the boards need 11.0 or newer"


def test_an_unreachable_server_is_one_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        refusal = push(f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert isinstance(refusal, Failed)
    assert str(refusal).endswith("cannot be reached: Connection refused")


@pytest.mark.parametrize("url", ["grafana:3000", "ftp://grafana", "http://", "http://h:port", "http://h:99999", ""])
def test_an_invalid_address_is_refused(url):
    refusal = push(url)
    assert isinstance(refusal, BadInput)
    assert str(refusal).startswith(f"--grafana-url: '{url}': must be http")


# -- tokens, export ---------------------------------------------------------------------------------------------


def test_the_file_wins_over_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAFANA_TOKEN", " from-environment\n")
    assert read_token(None) == "from-environment"
    (tmp_path / "token").write_text("from-file\n")
    assert read_token(tmp_path / "token") == "from-file"


@pytest.mark.parametrize("content", [None, b"", b"two words", b"\xff\xfe"], ids=["none", "empty", "words", "bytes"])
def test_a_token_file_that_holds_no_token_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "token").write_bytes(content)
    with pytest.raises(BadInput, match=r"^--token-file: .*token: "):
        read_token(tmp_path / "token")


def test_create_folder_needs_a_name():
    assert isinstance(push("http://h", "--create-folder"), BadInput)


def test_export_writes_boards_and_rules(tmp_path):
    result = CliRunner().invoke(group, ["dashboards", "export", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert [json.loads((tmp_path / "out" / f"{uid}.json").read_text())["uid"] for uid in UIDS] == UIDS
    assert yaml.safe_load((tmp_path / "out" / "heterotp-rules.yaml").read_text())["groups"]


def test_export_into_a_file_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(group, ["dashboards", "export", str(tmp_path / "file")])
    assert isinstance(result.exception, BadInput) and "\n" not in str(result.exception)
