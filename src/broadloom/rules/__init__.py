"""Rules for outgoing messages: every message that a program sends is checked, changed, copied, held or refused.

```python
rules = broadloom.rules.load("out.rules")
async with broadloom.connect("office/hq", rules=rules) as channel:
    await channel.broadcast_text("Plan B", headers={"subject": "plans (crypto)", "to": "com"})
```

`docs/rules.md` has the language. The same rules can be written as objects: `Rules([Rule(Test(…), (Copy("backup"),))])`.
"""

from broadloom.channel.outgoing import Outgoing, Way
from broadloom.errors import HeldError, NotSentError, RulesError
from broadloom.rules.formatter import format_rules
from broadloom.rules.held import HeldMessage, HeldMessages
from broadloom.rules.interpreter import Step
from broadloom.rules.model import (
    And,
    Comment,
    Compress,
    Constant,
    Copy,
    Encrypt,
    Forward,
    Hold,
    Named,
    Not,
    Or,
    Redact,
    Refuse,
    Regex,
    Rule,
    Run,
    Send,
    Set,
    Stop,
    Test,
)
from broadloom.rules.parser import parse
from broadloom.rules.preview import Preview
from broadloom.rules.programs import ProgramLimits
from broadloom.rules.rules import RuleCount, Rules, action, condition
from broadloom.rules.scanner import Mistake, RulesSyntaxError
from broadloom.security.sealing import SealingPrivateKey, SealingPublicKey

load = Rules.load

__all__ = [
    "And",
    "Comment",
    "Compress",
    "Constant",
    "Copy",
    "Encrypt",
    "Forward",
    "HeldError",
    "HeldMessage",
    "HeldMessages",
    "Hold",
    "Mistake",
    "Named",
    "Not",
    "NotSentError",
    "Or",
    "Outgoing",
    "Preview",
    "ProgramLimits",
    "Redact",
    "Refuse",
    "Regex",
    "Rule",
    "RuleCount",
    "Rules",
    "RulesError",
    "RulesSyntaxError",
    "Run",
    "SealingPrivateKey",
    "SealingPublicKey",
    "Send",
    "Set",
    "Step",
    "Stop",
    "Test",
    "Way",
    "action",
    "condition",
    "format_rules",
    "load",
    "parse",
]
