"""MkDocs hooks for `make docs`.

Links to files outside docs/ become plain text, because the site does not contain them. The marker `run` of code blocks
that the tests run is removed.
"""

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+[^)]*\)")
_RUN = re.compile(r"^```(\w+) run$", re.M)


def on_page_markdown(markdown: str, **_: Any) -> str:
    return _RUN.sub(r"```\1", _OUTSIDE.sub(r"\1", markdown))
