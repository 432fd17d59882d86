"""The certificate of the operator's HTTP server, from a directory as a kubernetes.io/tls Secret is mounted."""

import logging
import ssl
from pathlib import Path

logger = logging.getLogger(__name__)


class Certificate:
    """A TLS context with the pair `tls.crt` and `tls.key`; a renewed pair is used from the next handshake on.

    The server uses `context` until its end: each handshake starts with it and continues with the newest valid pair.
    """

    def __init__(self, directory: Path) -> None:
        """Load the pair. Raises OSError naming the file."""
        self._files = directory / "tls.crt", directory / "tls.key"
        self._seen = self._stamps()
        self._newest = self.context = self._load()
        self.context.sni_callback = self._hand_over

    def _stamps(self) -> list[tuple[int, int]]:
        """Return values that change when a file is replaced; the kubelet replaces both with one link."""
        try:
            return [(stat.st_ino, stat.st_mtime_ns) for stat in (file.stat() for file in self._files)]
        except OSError:
            return []

    def _load(self) -> ssl.SSLContext:
        """Return a new context: loading a pair into a context in use could mix two pairs. Raises OSError."""
        for file in self._files:
            file.read_bytes()  # load_cert_chain does not name the file that is missing
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(
                *self._files, password=""
            )  # without a password, an encrypted key prompts on the terminal
        except ssl.SSLError as error:
            raise OSError(f"{self._files[0]} and {self._files[1]} are no certificate and its key: {error}") from None
        return context

    def _hand_over(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Set the context with the newest pair; OpenSSL calls this also when the client sends no server name."""
        stamps = self._stamps()
        if stamps != self._seen:
            self._seen = stamps
            try:
                self._newest = self._load()
                logger.info("a renewed certificate is served: %s", self._files[0])
            except OSError as error:
                logger.error("the old certificate stays: %s", error)
        connection.context = self._newest
