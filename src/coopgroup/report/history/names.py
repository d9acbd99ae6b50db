"""Short names of members for readers.

Records have the name of their process; that of a real consumer is its client id. If several members
have the name at the same time, or write none, the name is from the member id: the client id (or
`group.instance.id`) and a UUID. The beginning of the UUID follows if the name alone is not unique.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from attrs import evolve

from coopgroup.core.telemetry.ledger import shared_names
from coopgroup.telemetry import Envelope, RoundDecided, RoundRefused

_ID: Final = re.compile(r"(?P<client>.+)-(?P<uuid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
_DIGITS: Final = (4, 8, 36)


def short_names(members: Iterable[str]) -> dict[str, str]:
    """Return a name for each member id; two member ids never get the same name."""
    parts = {member: _ID.fullmatch(member) for member in dict.fromkeys(members)}
    return told_apart(
        {
            member: (member, "") if part is None else (part["client"], part["uuid"])
            for member, part in parts.items()
        }
    )


def told_apart(parts: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Return a name for each member id, from its name and from a text that no other member has."""
    alike: dict[str, list[str]] = {}
    for member, (name, _) in parts.items():
        alike.setdefault(name, []).append(member)
    names: dict[str, str] = {}
    for name, members in alike.items():
        if len(members) == 1:
            names[members[0]] = name
            continue
        texts = [parts[member][1] for member in members]
        digits = next(
            (count for count in _DIGITS if len({text[:count] for text in texts}) == len(texts)),
            None,
        )
        for member, text in zip(members, texts, strict=True):
            names[member] = f"{name} {text[:digits]}" if text else name
    return names


def named(envelopes: Sequence[Envelope]) -> tuple[list[Envelope], Mapping[str, str]]:
    """Give each record a client name; return the records, and the name of each member id."""
    shared = shared_names(envelopes)
    envelopes = [evolve(one, client="") if one.client in shared else one for one in envelopes]
    known = {one.member: one.client for one in envelopes if one.member and one.client}
    listed = (
        member
        for one in envelopes
        for member in (
            one.member,
            *(one.record.members if isinstance(one.record, RoundDecided) else ()),
        )
        if member and member not in known
    )
    names = short_names(listed) | known
    return [_renamed(one, names) for one in envelopes], names


def _renamed(envelope: Envelope, names: Mapping[str, str]) -> Envelope:
    record = envelope.record
    if isinstance(record, RoundRefused):
        record = evolve(
            record, violations=tuple(_reworded(one, names) for one in record.violations)
        )
        envelope = evolve(envelope, record=record)
    if envelope.client or not envelope.member:
        return envelope
    return evolve(envelope, client=names[envelope.member])


def _reworded(sentence: str, names: Mapping[str, str]) -> str:
    for member, name in names.items():
        sentence = sentence.replace(member, name)
    return sentence
