"""`broadloom members`."""

import json
import signal

from tests.cli.harness import listening, new_channel, run, running_command


def test_members_are_listed_as_table_and_as_json() -> None:
    channel = new_channel()
    with listening(channel, "--as", "ann"), listening(channel, "--as", "bob"):
        code, out, err = run("members", channel)
        assert (code, err) == (0, "")
        assert "(ann)" in out
        assert "(bob)" in out
        code, out, err = run("members", channel, "--json")
        assert (code, err) == (0, "")
        listed = [json.loads(line) for line in out.splitlines()]
        assert sorted(each["name"] for each in listed) == ["ann", "bob"]
        assert all(each["address"].startswith("127.0.0.1:") and not each["is_proven"] for each in listed)


def test_lonely_command_lists_no_member() -> None:
    code, out, err = run("members", new_channel())
    assert (code, err) == (0, "")
    assert "none" in out


def test_follow_reports_changes_until_interrupted() -> None:
    channel = new_channel()
    with running_command("members", channel, "--follow") as follower:
        follower.wait_for_output("none")
        with listening(channel, "--as", "ann") as listener:
            follower.wait_for_output("+ ann joined, at 127.0.0.1:")
            listener.signal(signal.SIGINT)
            follower.wait_for_output("\n- ann left\n")
        with listening(channel, "--as", "bob") as listener:
            follower.wait_for_output("+ bob joined")
            listener.process.kill()
            follower.wait_for_output("\n- bob lost: dead\n")
        follower.signal(signal.SIGINT)
        assert follower.wait().code == 0


def test_wrong_name_is_a_usage_error() -> None:
    code, _, err = run("members", new_channel(), "--as", "x" * 65)
    assert code == 2
    assert "--as 'xxx" in err
