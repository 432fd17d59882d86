"""The calls to a Grafana that pushing boards needs; every error is one line.

grafana-api has no health call and does not list versions, so those go through its raw door.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import requests
from grafana_api.grafana_api import GrafanaClientError, GrafanaException, GrafanaUnauthorizedError
from grafana_api.grafana_face import GrafanaFace

from heterotp_cli.errors import BadInput, Failed

Json = dict[str, Any]
OLDEST = 11  # the oldest major version whose panels draw all options that the boards set


@dataclass(frozen=True)
class Stored:
    """A board as Grafana stores it: content, version, folder, message of that version, whether it is provisioned."""

    content: Json
    version: int
    folder: str
    message: str
    provisioned: bool


class Grafana:
    """One Grafana server."""

    def __init__(self, url: str, token: str) -> None:
        parts = _split(url)
        userinfo = (parts.username, parts.password or "") if parts.username else None
        host = parts.hostname or ""
        prefix = (
            f"{parts.path.strip('/')}/" if parts.path.strip("/") else ""
        )  # without a slash at its end the prefix is dropped
        self.url = f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}/{prefix}"
        self._face = GrafanaFace(
            auth=token or userinfo,
            host=f"[{host}]" if ":" in host else host,
            port=parts.port,
            protocol=parts.scheme,
            url_path_prefix=prefix,
            timeout=30.0,
        )

    def check_version(self) -> None:
        """Raise Failed unless a Grafana answers that is new enough; a hidden version is accepted."""
        with self._explained():
            health = self._face.api.GET("/health")
        if not isinstance(health, dict) or "database" not in health:
            raise self._not_grafana()
        major = re.match(r"\d+", str(health.get("version") or ""))
        if major and int(major[0]) < OLDEST:
            raise Failed(f"{self.url} is Grafana {health['version']}: the boards need {OLDEST}.0 or newer")

    def folder(self, name: str) -> str | None:
        """Return the uid of the folder with this title or uid, None if there is none."""
        with self._explained():
            folders = self._face.folder.get_all_folders()
        named = [each["uid"] for each in folders if each["uid"] == name]
        titled = [each["uid"] for each in folders if each["title"] == name]
        if len(named or titled) > 1:
            raise BadInput(f"--folder: '{name}': several folders have this title; give a uid: {', '.join(titled)}")
        return next(iter(named or titled), None)

    def create_folder(self, name: str) -> str:
        """Create a folder and return its uid."""
        with self._explained():
            uid: str = self._face.folder.create_folder(name)["uid"]
        return uid

    def board(self, uid: str) -> Stored | None:
        """Return a board, None if there is none."""
        with self._explained():
            try:
                found = self._face.dashboard.get_dashboard(uid)
            except GrafanaClientError as error:
                if error.status_code == 404:
                    return None
                raise
        content, meta = found["dashboard"], found.get("meta") or {}
        version = int(content.get("version") or 0)
        return Stored(
            content=content,
            version=version,
            folder=meta.get("folderUid") or "",
            message=self._message(uid, version),
            provisioned=bool(meta.get("provisioned")),
        )

    def _message(self, uid: str, version: int) -> str:
        """Return the message that this version was saved with, "" where Grafana does not return it."""
        with self._explained():
            try:
                listed = self._face.api.GET(f"/dashboards/uid/{uid}/versions?limit=10")
            except GrafanaClientError as error:
                if error.status_code in (403, 404):
                    return ""
                raise
        versions = listed.get("versions") or () if isinstance(listed, dict) else listed  # a bare list before Grafana 12
        return next((each.get("message") or "" for each in versions if each.get("version") == version), "")

    def save(self, board: Json, folder: str, message: str, over: Stored | None) -> str:
        """Save a board over the version that was read, and return its address."""
        body = {**board, "id": None, "version": over.version if over else 0}
        request = {"dashboard": body, "folderUid": folder, "overwrite": False, "message": message}
        with self._explained():
            try:
                saved = self._face.dashboard.update_dashboard(request)
            except GrafanaClientError as error:
                if error.status_code == 412:  # changed since it was read, or another board has the title
                    problem = f"{board['uid']}: Grafana refused it: {error.message}"
                    raise Failed(f"{problem}; if it was saved at the same time by another user, push again") from None
                raise
        path = urlsplit(str(saved.get("url") or f"/d/{board['uid']}")).path
        return f"{self.url}d/{path.rpartition('/d/')[2]}"

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors of the request into Failed with one line."""
        try:
            yield
        except GrafanaUnauthorizedError:
            raise Failed(f"{self.url} refuses the token (401): give one by --token-file or GRAFANA_TOKEN") from None
        except GrafanaException as error:
            message = error.response.get("message") if isinstance(error.response, dict) else None
            if message is None:
                raise self._not_grafana(f" ({error.status_code})") from None
            needs = ": the token's service account needs the role Editor" if error.status_code == 403 else ""
            raise Failed(f"{self.url} answers {error.status_code}: {message}{needs}") from None
        except (requests.exceptions.JSONDecodeError, TypeError):  # grafana-api cannot handle a body that is no object
            raise self._not_grafana() from None
        except requests.exceptions.RequestException as error:
            raise Failed(f"{self.url} cannot be reached: {_cause(error)}") from None

    def _not_grafana(self, how: str = "") -> Failed:
        return Failed(f"{self.url} does not answer as a Grafana does{how}: is --grafana-url right?")


def _split(url: str) -> Any:
    try:
        parts = urlsplit(url)
        port_is_number = parts.port is None or parts.port > 0
    except ValueError:
        parts, port_is_number = urlsplit(""), False
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_number:
        raise BadInput(f"--grafana-url: '{url}': must be http://HOST[:PORT][/PREFIX] or https://...")
    return parts


def _cause(error: BaseException) -> str:
    """Return the innermost reason: the outer ones name Python objects."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
