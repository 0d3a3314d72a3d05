"""HTML from Python: `tag("td", text, class_="number")`. Everything that is not markup already is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable

Attribute = str | float | bool | None
VOID = ("input", "br", "hr", "line", "rect", "path", "circle")


class Markup(str):
    """Text that is HTML. Only `tag` and `joined` make it."""

    __slots__ = ()


def tag(element: str, /, *children: str | int | Iterable[str], **attributes: Attribute) -> Markup:
    """An element. `class_` becomes class, `aria_label` aria-label; attributes that are None or False are left out."""
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if element in VOID and not children:
        return Markup(f"<{element}{written}/>")
    return Markup(f"<{element}{written}>{joined(children)}</{element}>")


def joined(children: Iterable[str | int | Iterable[str]]) -> Markup:
    """Elements and texts one after the other."""
    return Markup("".join(_child(child) for child in children))


def _child(child: str | int | Iterable[str]) -> str:
    if isinstance(child, Markup):
        return str(child)
    if isinstance(child, str | int):
        return html.escape(_visible(str(child)))
    return joined(child)


def _attribute(key: str, value: Attribute) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    if value is True:
        return f" {name}"
    return f' {name}="{html.escape(_visible(str(value)))}"'


def _visible(text: str) -> str:
    """Control characters, those that turn the direction of text, and lone surrogates as what stands for them."""
    return text.translate(_CONTROLS).encode("utf-8", "replace").decode() if not text.isprintable() else text


_TURNS = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_CONTROLS: dict[int, str] = {code: f"\\u{code:04x}" for code in (*range(0x80, 0xA0), 0xFEFF, *_TURNS)}
_CONTROLS |= {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"} | {0x7F: "\u2421"}
