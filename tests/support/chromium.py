"""A real Chromium without a window: pages as it builds them."""

import subprocess


def dom(address, profile):
    """Return the page of an address after its scripts, as HTML; profile: a folder for the browser's own files."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
    call = ["chromium", *options, "--virtual-time-budget=5000", "--dump-dom", address]
    return subprocess.run(call, capture_output=True, text=True, check=True, timeout=120).stdout
