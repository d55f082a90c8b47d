"""Installs what `make bench` needs, and continues without what is not available: `python bench/install.py`.

Run it with the Python of the environment to fill; it needs only the standard library. Missing systems are listed here,
again before the run, and in the tables.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

DIRECTORY = Path(__file__).resolve().parent
PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")

DEBIAN = {
    "nats-server": "nats-server",
    "redis-server": "redis-server",
    "mosquitto": "mosquitto",
    "javac": "default-jdk-headless",
    "/usr/share/java/jgroups.jar": "libjgroups-java",
}
"""A program or file, and the package that brings it."""

INSTALL_S = 1800


def log(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def succeeds(command: Sequence[str], environment: dict[str, str] | None = None) -> bool:
    try:
        return subprocess.run(command, env=environment, timeout=INSTALL_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired) as problem:
        log(str(problem))
        return False


def install_python_packages() -> None:
    """All at once, or else one by one without those that fail: each line of the file is a pinned package."""
    requirements = DIRECTORY / "requirements.txt"
    if succeeds([*PIP, "--requirement", str(requirements)]):
        return
    log("not all Python packages can be installed together; trying them one by one")
    lines = [line.strip() for line in requirements.read_text().splitlines()]
    failed = [line for line in lines if line and not line.startswith("#") and not succeeds([*PIP, line])]
    if failed:
        log(f"without {', '.join(failed)}")


def install_broadloom() -> bool:
    return succeeds([*PIP, "--no-build-isolation", "--editable", str(DIRECTORY.parent)])


def is_installed(name: str) -> bool:
    return Path(name).exists() if name.startswith("/") else shutil.which(name) is not None


def install_debian_packages() -> None:
    """Only as root, where there is apt. Services that they start play no part: the benchmark starts its own."""
    missing = [package for name, package in DEBIAN.items() if not is_installed(name)]
    if not missing:
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        install = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends"]
        succeeds(["apt-get", "update", "--quiet"], environment)
        if not succeeds([*install, *missing], environment):
            for package in missing:
                succeeds([*install, package], environment)
    still = [package for thing, package in DEBIAN.items() if not is_installed(thing)]
    if still:
        log(f"some systems will be left out; to have them: apt-get install {' '.join(still)}")


def main() -> int:
    install_debian_packages()
    install_python_packages()
    if not install_broadloom():
        log("Broadloom itself could not be installed")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
