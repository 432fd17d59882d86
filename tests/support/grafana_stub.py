"""A stub of the part of Grafana's HTTP API that pushing boards uses, with its state and its errors.

It models boards with versions and messages, folders, tokens, optimistic locking and provisioned boards. The same tests
run against a real Grafana where GRAFANA_URL is set.
"""

import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
TOKEN = "glsa_editor"
READ_ONLY = "glsa_viewer"


@dataclass
class StoredBoard:
    """A board and the messages of its versions."""

    content: Json
    folder: str
    messages: list[str]
    provisioned: bool = False

    @property
    def version(self) -> int:
        """Return the newest version's number."""
        return len(self.messages)


@dataclass
class State:
    """The state of the stub."""

    version: str = "12.4.10"
    boards: dict[str, StoredBoard] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)  # uid -> title
    writes: int = 0
    bare_version_list: bool = False  # the format of Grafana 11
    broken: tuple[int, bytes] | None = None  # response to every request


class Refusal(Exception):
    """A response with a status other than 200."""

    def __init__(self, code: int, message: str, **more: str) -> None:
        super().__init__(message)
        self.code, self.body = code, {"message": message, **more}


class _Handler(BaseHTTPRequestHandler):
    state: State

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"{}")
        if self.state.broken:
            self._send(*self.state.broken)
            return
        try:
            self._send(200, json.dumps(self._route(body)).encode())
        except Refusal as refusal:
            self._send(refusal.code, json.dumps(refusal.body).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _route(self, body: Json) -> Any:
        path = self.path.partition("?")[0].removeprefix("/grafana")
        if path == "/api/health":
            return {"database": "ok", "version": self.state.version, "commit": "0"}
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token not in (TOKEN, READ_ONLY):
            raise Refusal(401, "Invalid API key")
        if self.command == "POST" and token == READ_ONLY:
            raise Refusal(403, "You'll need additional permissions to perform this action")
        if path == "/api/folders":
            return self._create_folder(body) if self.command == "POST" else self._folders()
        if path == "/api/dashboards/db":
            return self._save(body)
        if found := re.fullmatch(r"/api/dashboards/uid/([\w-]+)(/versions)?", path):
            board = self.state.boards.get(found[1])
            if board is None:
                raise Refusal(404, "Dashboard not found")
            return self._versions(board) if found[2] else self._board(board)
        raise Refusal(404, "Not found")

    def _folders(self) -> list[Json]:
        return [{"id": n, "uid": uid, "title": title} for n, (uid, title) in enumerate(self.state.folders.items())]

    def _create_folder(self, body: Json) -> Json:
        uid = body.get("uid") or f"folder{len(self.state.folders)}"
        self.state.folders[uid] = body["title"]
        return {"id": len(self.state.folders), "uid": uid, "title": body["title"]}

    def _board(self, board: StoredBoard) -> Json:
        content = {**board.content, "id": 7, "version": board.version}
        return {"dashboard": content, "meta": {"folderUid": board.folder, "provisioned": board.provisioned}}

    def _versions(self, board: StoredBoard) -> Any:
        versions = [{"id": n, "version": n, "message": text} for n, text in enumerate(board.messages, 1)][::-1]
        return versions if self.state.bare_version_list else {"continueToken": "", "versions": versions}

    def _save(self, body: Json) -> Json:
        content, folder = dict(body["dashboard"]), body.get("folderUid") or ""
        uid, seen = content["uid"], content.pop("version", 0)
        content.pop("id", None)
        if folder and folder not in self.state.folders:
            raise Refusal(400, "folder not found", status="not-found")
        board = self.state.boards.get(uid)
        if board is None:
            self.state.boards[uid] = board = StoredBoard(content, folder, [])
        elif board.provisioned:
            raise Refusal(400, "Cannot save provisioned dashboard")
        elif seen != board.version and not body.get("overwrite"):
            raise Refusal(412, "The dashboard has been changed by someone else", status="version-mismatch")
        board.content, board.folder = content, folder
        board.messages.append(body.get("message") or "")
        self.state.writes += 1
        return {"id": 7, "uid": uid, "status": "success", "version": board.version, "url": f"/d/{uid}/{uid}"}


class GrafanaStub:
    """Serves a State on a port of its own while used as a context."""

    def __init__(self) -> None:
        self.state = State()
        handler = type("Handler", (_Handler,), {"state": self.state})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> "GrafanaStub":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
