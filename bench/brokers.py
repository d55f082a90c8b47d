"""The servers of systems that have one: how each is started, with nothing but a free port and a directory of its own.

A service of the same name that the machine may run has no part in it. Each is set so that it loses nothing where that
can be set.
"""

import os
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.certificates import make_certificate
from bench.process_config import HOST

Started = tuple[list[str], dict[str, Any]]
"""The command, and options for the nodes."""

Broker = Callable[[int, Path], Started]


def nats(port: int, directory: Path) -> Started:
    """With JetStream, which its key-value store needs."""
    return ["nats-server", "-a", HOST, "-p", str(port), "-js", "-sd", str(directory)], {"port": port}


def nats_tls(port: int, directory: Path) -> Started:
    certificate, key = make_certificate(directory, HOST)
    command, info = nats(port, directory)
    command += ["--tls", "--tlscert", str(certificate), "--tlskey", str(key)]
    return command, {**info, "certificate": str(certificate)}


def redis(port: int, directory: Path) -> Started:
    """Without files, and without the limit at which it drops slow subscribers."""
    command = ["redis-server", "--bind", HOST, "--port", str(port), "--dir", str(directory)]
    command += ["--save", "", "--appendonly", "no", "--client-output-buffer-limit", "pubsub", "0", "0", "0"]
    return command, {"port": port}


def mosquitto(port: int, directory: Path) -> Started:
    """Without files, and without the limit on messages that wait for a subscriber."""
    settings = directory / "mosquitto.conf"
    lines = [
        f"listener {port} {HOST}",
        "allow_anonymous true",
        "max_queued_messages 0",
        "set_tcp_nodelay true",
        "persistence false",
        # Else it would look for a user of its own, which is not there everywhere.
        f"user {pwd.getpwuid(os.getuid()).pw_name}",
    ]
    settings.write_text("\n".join(lines) + "\n")
    return ["mosquitto", "-c", str(settings)], {"port": port}
