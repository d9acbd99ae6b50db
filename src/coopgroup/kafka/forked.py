"""A member belongs to the process that made it, also if that process forks.

A forked child has none of the member's threads, but perhaps a lock that one of them held during the
fork. A call of the child could wait for ever, and its requests would reach the broker on the
connections of the parent. So in the child each part of a member is replaced by a stand-in that
says why it cannot be used.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Final, NoReturn

_WHY: Final = "it belongs to the process that made it; make another one after the fork"
# By id: an application may subclass a consumer, and make it unhashable.
_owners: Final[dict[int, tuple[weakref.ref[object], tuple[str, ...]]]] = {}


class _OfParent:
    """A part of the parent's member; it stays alive, because librdkafka cannot end in a child."""

    def __init__(self, part: object) -> None:
        self._part = part

    def __getattr__(self, _: str) -> NoReturn:
        raise RuntimeError(_WHY)

    def __enter__(self) -> NoReturn:
        raise RuntimeError(_WHY)

    def __exit__(self, *_: object) -> None: ...


def keep_to_process(owner: object, *parts: str) -> None:
    """Let only this process use the attributes of these names; None may be there for no part."""
    key = id(owner)
    _owners[key] = weakref.ref(owner, lambda _: _owners.pop(key, None)), parts


def is_of_parent(part: object) -> bool:
    """Return whether this process is a forked child, and has the part from its parent."""
    return isinstance(part, _OfParent)


def _stand_in() -> None:
    for reference, parts in tuple(_owners.values()):
        owner = reference()
        for name in parts:
            part = getattr(owner, name, None)
            if part is not None:
                setattr(owner, name, _OfParent(part))
    _owners.clear()


os.register_at_fork(after_in_child=_stand_in)

forks_wait: Final = threading.RLock()
"""Held by a thread of a member while it imports modules.

A child would inherit the lock of a module that no thread releases there, and wait for ever when it
imports this module.
"""
os.register_at_fork(
    before=forks_wait.acquire,
    after_in_parent=forks_wait.release,
    after_in_child=forks_wait.release,
)
