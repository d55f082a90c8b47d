"""The page that asks for the password: plain HTML, since nothing else may be had yet."""

from html import escape

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Weft: password</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; display: grid; place-items: center; min-height: 90vh; margin: 0 1rem; }}
form {{ display: grid; gap: .75rem; width: min(20rem, 100%); }}
h1 {{ font-size: 1.4rem; margin: 0; }}
input, button {{ font: inherit; padding: .6rem .7rem; border-radius: 6px; border: 1px solid #8a93a3; }}
button {{ background: #0b5cad; color: #fff; border-color: #0b5cad; cursor: pointer; }}
.problem {{ color: #b3410e; margin: 0; }}
@media (prefers-color-scheme: dark) {{ .problem {{ color: #ff9d6b; }} }}
</style>
</head>
<body>
<form method="post" action="/door">
<h1>Weft</h1>
<label for="password">Password of this server</label>
<input id="password" name="password" type="password" autocomplete="current-password" autofocus required>
{problem}
<button type="submit">Open</button>
</form>
</body>
</html>
"""


def door_page(problem: str = "") -> str:
    told = f'<p class="problem" role="alert">{escape(problem)}</p>' if problem else ""
    return _PAGE.format(problem=told)
