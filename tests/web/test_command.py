"""`broadloom web` from a shell: mistakes, and the password."""

import http.client
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from broadloom.cli.main import app
from tests.web.sample_data import make_tape
from tests.web.server import running_server


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "pass a channel, --tapes, --results or --service"),
        (["--tapes", "/nowhere/at/all"], "is not a directory"),
        (["--tapes", ".", "--bills", "results"], "name it with --service"),
        (["--service", "news"], "news"),
        (["--tapes", ".", "--listen", "here"], "--listen must be a port"),
        (["--tapes", ".", "--listen", "0.0.0.0:0"], "set BROADLOOM_WEB_PASSWORD"),
    ],
)
def test_command_mistakes_say_what_to_do(words: list[str], error: str) -> None:
    result = CliRunner().invoke(app, ["web", *words])
    assert result.exit_code == 2
    assert error in " ".join(result.output.split())


def test_remote_access_requires_the_password(tmp_path: Path) -> None:
    tape = make_tape(tmp_path / "kill", 8)
    words = ("-c", "from broadloom.cli.main import main; main()", "web", "--tapes", str(tape), "--listen", "0.0.0.0:0")
    with running_server(*words, BROADLOOM_WEB_PASSWORD="open sesame") as url:
        port = urlsplit(url).port

        def ask(method: str, path: str, body: str = "", **headers: str) -> tuple[int, str, str]:
            line = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            line.request(method, path, body, {"content-type": "application/x-www-form-urlencoded", **headers})
            answer = line.getresponse()
            answered = answer.status, answer.getheader("set-cookie") or "", answer.read().decode()
            line.close()
            return answered

        assert ask("GET", "/replay")[0] == 401
        assert ask("GET", "/data/kill/snapshot")[0] == 401
        assert ask("POST", "/login", "password=sesame")[0] == 403
        status, cookie, _ = ask("POST", "/login", "password=open+sesame")
        assert status == 303
        cookie = cookie.partition(";")[0]
        assert "Replay" in ask("GET", "/replay", cookie=cookie)[2]
        status, _, text = ask("GET", "/data/kill/stats", cookie=cookie)
        assert status == 200
        assert '"partitions":1' in text
        status, _, text = ask("GET", "/data/nothing/snapshot", cookie=cookie)
        assert (status, "there is no tape" in text) == (404, True)
        for path in ("/", "/cluster", "/traffic", "/conversations", "/tables"):
            assert ask("GET", path, cookie=cookie)[0] == 200
