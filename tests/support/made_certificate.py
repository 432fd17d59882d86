"""A self-made certificate in the files of a kubernetes.io/tls Secret."""

import subprocess

HOST = "r-operator.system.svc"


def made(directory, name="first"):
    """Write tls.crt and tls.key for HOST, and ca.crt for their verification; return the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    key, certificate = directory / "tls.key", directory / "tls.crt"
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    who = ("-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{HOST}", "-days", "2")
    subprocess.run(
        ["openssl", "req", "-x509", *curve, *who, "-keyout", key, "-out", certificate], check=True, capture_output=True
    )
    (directory / "ca.crt").write_bytes(certificate.read_bytes())
    return directory
