"""The four listings of the patent (US 5,634,005) run as they are printed, with programs that record their input."""

from pathlib import Path
from unittest.mock import patch

import pytest

from broadloom.rules import Rules, RulesSyntaxError, condition, parse
from tests.channel.joined import connected_channels
from tests.rules.recording import LIMITS, Recorder

SEVERAL = """\
IF { subject "(trans)" }  
THEN { data transforming program }  
  
IF { subject "(comp)" }  
THEN { compressing program }  
  
IF { subject "(crypto)" }  
THEN { encipherment program }  
  
IF { condition }  
THEN { processing }  
  
IF { condition }  
THEN { processing }
"""  # noqa: W291, W293

NESTED = """\
IF {  
  to("com")  
}  
THEN {  
  copy_prg $/backup  
  
  IF {  
    date < "1993.04.20"  
  }  
  THEN {  
    mail_prg userA < $  
  
    IF {  
      subject("crypto")  
    }  
    THEN {  
      crypto_prg $  
  
      IF {  
        subject("comp")  
      }  
      THEN {  
        compress_prg $  
      }  
    }  
  }  
}
"""  # noqa: W291, W293

JOINED = """\
IF {  
  to("com") AND subject("comp") AND  
  subject("crypto")  
}  
THEN {  
  copy_prg $/backup  
  compress_prg $  
  crypto_prg $  
}
"""  # noqa: W291

SCANNED = """\
      IF {
      } to ( " com" )
      THEN{
      } copy_prg $/ backup
      IF {
      } date < "1993. 04.20"
      THEN{
      } IF {
      } subject ( "crypto" )
      THEN{
      } crypto_prg $
      mail_prg userA < $
      }
      IF {
      } subject ( "comp" )
      THEN{
      } compress_prg $
      }
"""
"""The fourth listing as it was scanned: text recognition moved the closing braces up and put spaces into texts."""

ENCIPHERED_FIRST = """\
      IF {
      to ( "com" ) }
      THEN{
      copy_prg $/backup
      IF {
      date < "1993.04.20" }
      THEN{
      IF {
      subject ( "crypto" ) }
      THEN{
      crypto_prg $
      mail_prg userA < $
      }
      IF {
      subject ( "comp" ) }
      THEN{
      compress_prg $
      } } }
"""
"""The same words, with the braces and the texts where the other listings have them."""

PROGRAMS = ("copy_prg", "mail_prg", "crypto_prg", "compress_prg")
BEFORE, AFTER = 735_000_000.0, 736_000_000.0
"""16 and 28 April 1993."""


async def sent(text: str, recorder: Recorder, at_s: float, headers: dict[str, str]) -> str:
    """What another member receives."""
    rules = Rules(parse(text), programs=recorder.programs, limits=LIMITS)
    async with connected_channels(2, rules=rules) as (author, reader):
        with patch("broadloom.rules.rules.time.time", return_value=at_s):
            await author.broadcast_text("plan", headers=headers)
        return (await reader.receive(30)).text


async def test_several_rules_each_act_on_what_the_one_before_has_made(tmp_path: Path) -> None:
    condition("condition")(lambda _out: False)
    names = ("data transforming program", "compressing program", "encipherment program", "processing")
    recorder = Recorder(tmp_path, names)
    headers = {"subject": "plans (crypto) (trans)"}
    assert await sent(SEVERAL, recorder, AFTER, headers) == "encipherment program(data transforming program(plan))"
    assert recorder.calls == [
        "data transforming program [] plan",
        "encipherment program [] data transforming program(plan)",
    ]


async def test_nested_rules_copy_and_mail_plain_text_then_encipher_and_compress(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, PROGRAMS)
    headers = {"to": "sales.com", "subject": "plans (comp) (crypto)"}
    assert await sent(NESTED, recorder, BEFORE, headers) == "compress_prg(crypto_prg(plan))"
    assert recorder.calls == [
        "copy_prg [/backup] plan",
        "mail_prg [userA] plan",
        "crypto_prg [] plan",
        "compress_prg [] crypto_prg(plan)",
    ]


async def test_nested_rules_only_copy_after_the_date(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, PROGRAMS)
    headers = {"to": "sales.com", "subject": "plans (comp) (crypto)"}
    assert await sent(NESTED, recorder, AFTER, headers) == "plan"
    assert recorder.calls == ["copy_prg [/backup] plan"]


@pytest.mark.parametrize(
    ("subject", "received"),
    [("(COMP) and (crypto)", "crypto_prg(compress_prg(plan))"), ("(crypto) only", "plan")],
)
async def test_conditions_joined_by_and_must_all_hold(tmp_path: Path, subject: str, received: str) -> None:
    recorder = Recorder(tmp_path, PROGRAMS)
    assert await sent(JOINED, recorder, AFTER, {"to": "COM", "subject": subject}) == received
    assert len(recorder.calls) == (3 if received != "plan" else 0)


async def test_enciphering_before_mailing_gives_the_reader_cipher_text_and_the_backup_plain_text(
    tmp_path: Path,
) -> None:
    recorder = Recorder(tmp_path, PROGRAMS)
    headers = {"to": "com", "subject": "plans (comp) (crypto)"}
    assert await sent(ENCIPHERED_FIRST, recorder, BEFORE, headers) == "compress_prg(crypto_prg(plan))"
    assert recorder.calls == [
        "copy_prg [/backup] plan",
        "crypto_prg [] plan",
        "mail_prg [userA] crypto_prg(plan)",
        "compress_prg [] crypto_prg(plan)",
    ]


def test_listing_with_misplaced_braces_is_rejected_with_its_place() -> None:
    with pytest.raises(RulesSyntaxError) as rejected:
        parse(SCANNED)
    assert str(rejected.value.mistakes[0]) == "line 2, column 7: expected a condition, found `}`"
    assert "".join(SCANNED.split()).replace("}", "") == "".join(ENCIPHERED_FIRST.split()).replace("}", "")
