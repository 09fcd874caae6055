"""Pages of HTML from the templates of this folder: every text is escaped, nothing is left undefined, all is ASCII."""

import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_doctor import __version__
from vllm_doctor.redact.visible import visible
from vllm_doctor.render.instructions import scalar
from vllm_doctor.render.text import figure

if TYPE_CHECKING:
    import jinja2
    import markupsafe


def rendered(name: str, **values: object) -> str:
    """The page that this template makes of the values."""
    return _environment().get_template(name).render(**values).encode("ascii", "xmlcharrefreplace").decode()


@cache
def _environment() -> "jinja2.Environment":
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["version"] = __version__
    environment.filters.update(visible=visible, figure=figure, scalar=scalar, coded=_coded, moment=_moment)
    return environment


def _coded(text: str) -> "markupsafe.Markup":
    """A page's prose with its `words of code` as such; all else escaped."""
    import markupsafe

    parts = text.split("`")
    if len(parts) % 2 == 0:
        return markupsafe.escape(text)
    code = markupsafe.Markup("<code>{}</code>")
    return markupsafe.Markup("").join(code.format(part) if at % 2 else part for at, part in enumerate(parts))


def _moment(at: float) -> str:
    """A time as people write it, in UTC."""
    try:
        return datetime.datetime.fromtimestamp(at, tz=datetime.UTC).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return ""
