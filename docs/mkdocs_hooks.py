"""For `make docs`: what other readers of these pages understand, and MkDocs does not.

Links to files outside docs/ become plain words, because a site has no such files. Blocks that the tests run are blocks
like any other.
"""

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+[^)]*\)")
_RUN = re.compile(r"^```(\w+) run$", re.M)


def on_page_markdown(markdown: str, **_: Any) -> str:
    return _RUN.sub(r"```\1", _OUTSIDE.sub(r"\1", markdown))
