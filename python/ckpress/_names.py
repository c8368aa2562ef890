# SPDX-License-Identifier: Apache-2.0
"""Names of tensors, and paths for messages.

A tensor's name is the path to it, its keys joined by "/" and escaped as in JSON pointers (RFC 6901): "~" is "~0", "/" is "~1"; an
empty key is "~e", NUL is "~z". A name that is taken gets "~2", "~3" ... at its end, which no key can end in.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

NAME_MAX = 4096  # bytes, as in docs/format.md


class Attr(str):
    """A step of a path that is an attribute (``.param_groups``), not a key (``['lr']``)."""


Path = tuple[Any, ...]


def show(path: Path) -> str:
    """The path as Python would write it: ``optimizer.param_groups[0]['lr']``."""
    if not path:
        return "the saved object"
    out = str(path[0]) if isinstance(path[0], Attr) else f"[{path[0]!r}]"
    for key in path[1:]:
        out += f".{key}" if isinstance(key, Attr) else f"[{key!r}]"
    return out


def _escape(key: Any) -> str:
    text = key if isinstance(key, str) else repr(key)
    text = text.replace("~", "~0").replace("/", "~1").replace("\0", "~z")
    text = "".join(f"~u{ord(c):04x}" if 0xD800 <= ord(c) <= 0xDFFF else c for c in text)
    return text or "~e"


def join(path: Path) -> str:
    """The name of the tensor at a path, at most :data:`NAME_MAX` bytes of UTF-8."""
    name = "/".join(_escape(key) for key in path) or "tensor"
    raw = name.encode()
    # Room for "~" and a number; a cut name keeps its head and stays unique by its hash.
    if len(raw) > NAME_MAX - 16:
        digest = hashlib.blake2b(raw, digest_size=16).hexdigest()
        name = raw[: NAME_MAX - 64].decode(errors="ignore") + "~h" + digest
    return name


class Names:
    """Makes names unique."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, name: str) -> str:
        unique, n = name, 2
        while unique in self._taken:
            unique, n = f"{name}~{n}", n + 1
        self._taken.add(unique)
        return unique


_WRAPPERS = re.compile(r"(?:^|\.)(?:_orig_mod|module)(?=\.)")


def strip_wrappers(key: str) -> str:
    """A parameter's key without the prefixes of torch.compile (``_orig_mod.``) and DataParallel (``module.``), at any level."""
    return _WRAPPERS.sub("", key).lstrip(".") or key
