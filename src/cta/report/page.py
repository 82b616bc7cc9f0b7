"""One self-contained HTML file: the data as JSON, our own style and scripts, nothing from a network."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

SCRIPTS = ("base.js", "schematic.js", "charts.js", "tables.js", "map.js", "player.js", "page.js")


def render(data: dict[str, Any]) -> bytes:
    def asset(name: str) -> str:
        return (files("cta.report") / "assets" / name).read_text("utf-8")

    script = '"use strict";\n(() => {\n' + "\n".join(map(asset, SCRIPTS)) + "\n})();\n"
    # Only this one script may run and nothing may be fetched, whatever the names in the data say.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data: blob:; media-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    parts = {"title": html.escape(str(data["title"])), "policy": policy, "style": asset("style.css")}
    parts |= {"script": script, "data": embed(data)}
    # In one pass: what is put in is never searched for marks.
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], asset("page.html")).encode()


def embed(data: Any) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def table(titles: Sequence[str], rows: Iterable[Sequence[Any]], *, words: int) -> dict[str, Any]:
    """A table of texts, by the numbers they begin with sortable after the first `words` columns."""
    columns = [{"title": title, "number": place >= words} for place, title in enumerate(titles)]
    return {"columns": columns, "rows": [[*row[:words], *map(_cell, row[words:])] for row in rows]}


def _cell(text: str) -> dict[str, Any]:
    found = re.match(r"[-−+]?[\d,]*\d(\.\d+)?", text)
    number = float(found[0].replace("−", "-").replace(",", "")) if found else None
    return {"text": text, "sort": None if text == "–" else text if number is None else number}
