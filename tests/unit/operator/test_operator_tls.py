"""The operator's HTTP server over TLS: who believes it, renewal without a restart, and files that are no pair."""

import asyncio
import os
import ssl

import pytest
from heterotp_operator import __main__ as program
from heterotp_operator.certificate import Certificate
from heterotp_operator.metrics import Metrics
from heterotp_operator.server import Server
from heterotp_operator.settings import from_environment
from support.made_certificate import HOST, made


class Serving:
    """A server of the operator, and what its clients meet."""

    def __init__(self, directory, port):
        self.directory, self.port = directory, port
        self.server = Server(Metrics(), {}, lambda: [], lambda: 0.0)

    async def handshake(self, authority, name=HOST, newest=None):
        """Return the CN of the certificate that a client meets, and the protocol; the client asks for /readyz."""
        context = ssl.create_default_context(cafile=authority)
        if name is None:  # as the kubelet does: by address, without checking the certificate
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = newest or ssl.TLSVersion.MAXIMUM_SUPPORTED
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname=name or "")
        try:
            connection = writer.get_extra_info("ssl_object")
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: operator\r\nConnection: close\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 200 OK")
            subject = dict(pair for (pair,) in (connection.getpeercert() or {}).get("subject", ()))
            return subject.get("commonName"), connection.version()
        finally:
            writer.close()


@pytest.fixture
async def serving(tmp_path, unused_tcp_port):
    serving = Serving(made(tmp_path / "tls"), unused_tcp_port)
    await serving.server.start("127.0.0.1", serving.port, Certificate(serving.directory).context)
    yield serving
    await serving.server.stop()


async def test_a_client_that_trusts_the_authority_is_served(serving):
    assert await serving.handshake(serving.directory / "ca.crt") == ("first", "TLSv1.3")


async def test_a_client_without_a_server_name_is_served(serving):
    _, protocol = await serving.handshake(None, name=None)
    assert protocol == "TLSv1.3"


async def test_a_client_refuses_a_server_with_another_key(serving, tmp_path):
    with pytest.raises(ssl.SSLCertVerificationError):
        await serving.handshake(made(tmp_path / "other") / "ca.crt")
    with pytest.raises(ssl.SSLCertVerificationError):
        await serving.handshake(serving.directory / "ca.crt", name="elsewhere.svc")


async def test_versions_before_tls_1_2_are_refused(serving):
    authority = serving.directory / "ca.crt"
    assert await serving.handshake(authority, newest=ssl.TLSVersion.TLSv1_2) == ("first", "TLSv1.2")
    assert Certificate(serving.directory).context.minimum_version == ssl.TLSVersion.TLSv1_2


async def test_plain_http_is_not_answered(serving):
    reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: operator\r\n\r\n")
    assert b"HTTP" not in await reader.read()
    writer.close()


async def test_a_renewed_certificate_is_used_without_a_restart(serving):
    for name in ("second", "third"):
        made(serving.directory, name)
        assert (await serving.handshake(serving.directory / "ca.crt"))[0] == name


async def test_the_old_certificate_is_used_while_the_new_one_is_invalid(serving, tmp_path, caplog):
    authority = tmp_path / "first.crt"
    authority.write_bytes((serving.directory / "ca.crt").read_bytes())
    (serving.directory / "tls.key").write_bytes((made(tmp_path / "other") / "tls.key").read_bytes())
    for _ in range(2):
        assert (await serving.handshake(authority))[0] == "first"
    (logged,) = [record for record in caplog.records if record.name == "heterotp_operator.certificate"]  # logged once
    assert logged.levelname == "ERROR"
    assert "the old certificate stays: " in logged.message and str(serving.directory / "tls.key") in logged.message
    (serving.directory / "tls.crt").unlink()
    assert (await serving.handshake(authority))[0] == "first"
    assert "No such file" in caplog.records[-1].message
    made(serving.directory, "second")
    assert (await serving.handshake(serving.directory / "ca.crt"))[0] == "second"


async def test_a_swapped_link_of_the_kubelet_is_followed(tmp_path, unused_tcp_port):
    made(tmp_path / "old", "old"), made(tmp_path / "new", "new")
    os.symlink("old", tmp_path / "..data")
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    for name in ("tls.crt", "tls.key", "ca.crt"):
        os.symlink(f"../..data/{name}", mounted / name)
    serving = Serving(mounted, unused_tcp_port)
    await serving.server.start("127.0.0.1", serving.port, Certificate(mounted).context)
    try:
        assert (await serving.handshake(mounted / "ca.crt"))[0] == "old"
        os.symlink("new", tmp_path / "..next")
        os.replace(tmp_path / "..next", tmp_path / "..data")
        assert (await serving.handshake(mounted / "ca.crt"))[0] == "new"
    finally:
        await serving.server.stop()


def strange_key(directory):
    (directory / "tls.key").write_bytes((made(directory / "other") / "tls.key").read_bytes())


@pytest.mark.parametrize(
    ("spoil", "file"),
    [
        (lambda directory: (directory / "tls.crt").unlink(), "tls.crt"),
        (lambda directory: (directory / "tls.key").unlink(), "tls.key"),
        (lambda directory: (directory / "tls.crt").write_text("not PEM"), "tls.crt"),
        (lambda directory: (directory / "tls.key").write_text(""), "tls.key"),
        (strange_key, "tls.key"),
    ],
    ids=["no certificate", "no key", "a certificate that is none", "an empty key", "another's key"],
)
def test_an_invalid_certificate_at_the_start_is_one_line_and_exit_code_2(tmp_path, monkeypatch, capsys, spoil, file):
    spoil(made(tmp_path))
    monkeypatch.setenv("HETEROTP_METRICS_TLS_DIRECTORY", str(tmp_path))
    assert program.main() == 2
    printed = capsys.readouterr().err
    assert printed.startswith("heterotp-operator: HETEROTP_METRICS_TLS_DIRECTORY: ")
    assert str(tmp_path / file) in printed and printed.count("\n") == 1


def test_without_a_directory_the_server_uses_plain_http():
    assert program.tls_context(from_environment({})) is None
