"""The certificate of the operator's HTTP server, from a directory as a kubernetes.io/tls Secret is mounted."""

import logging
import ssl
from pathlib import Path

logger = logging.getLogger(__name__)


class Certificate:
    """A TLS context over `tls.crt` and `tls.key`; a renewed pair serves from the next handshake on.

    `context` is for the server's whole life: each handshake begins in it and goes on with the newest good pair.
    """

    def __init__(self, directory: Path) -> None:
        """Load the pair. Raises OSError naming the file."""
        self._files = directory / "tls.crt", directory / "tls.key"
        self._seen = self._stamps()
        self._newest = self.context = self._load()
        self.context.sni_callback = self._hand_over

    def _stamps(self) -> list[tuple[int, int]]:
        """Return what changes when a file is replaced; the kubelet swaps both by one link."""
        try:
            return [(stat.st_ino, stat.st_mtime_ns) for stat in (file.stat() for file in self._files)]
        except OSError:
            return []

    def _load(self) -> ssl.SSLContext:
        """Return a fresh context: loading into one that is in use could leave it with halves of two pairs."""
        for file in self._files:
            file.read_bytes()  # load_cert_chain does not name the file that is missing
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(*self._files, password="")  # without one, an encrypted key asks the terminal
        except ssl.SSLError as error:
            raise OSError(f"{self._files[0]} and {self._files[1]} are no certificate and its key: {error}") from None
        return context

    def _hand_over(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Let a handshake go on with the newest pair; OpenSSL asks here also when the client names no server."""
        stamps = self._stamps()
        if stamps != self._seen:
            self._seen = stamps
            try:
                self._newest = self._load()
                logger.info("a renewed certificate is served: %s", self._files[0])
            except OSError as error:
                logger.error("the old certificate stays: %s", error)
        connection.context = self._newest
