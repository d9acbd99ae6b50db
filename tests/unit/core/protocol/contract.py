"""The contract of every codec, checked with all golden vectors of its kind of message.

A test class of a kind inherits `CodecContract` and sets `kind`.
"""

import struct
import tracemalloc
from typing import Any, ClassVar, final

import pytest

from coopgroup import errors
from coopgroup.errors import DecodeError, InvalidCountError
from tests.unit.core.protocol.reference import (
    MAGIC,
    Length,
    Vector,
    load_malformed,
    load_vectors,
    reference_decode,
    reference_encode,
)
from tests.unit.core.protocol.rows import DECODERS, encode, value_of

_READ_BYTES_MAX = 20_000  # memory limit for refusing a few dozen bytes, whatever they claim
# The last fields of a message: groups of them before which the message may end.
_OPTIONAL_ENDS = {
    ("subscription", 1): [["owned"]],
    ("user_data", 1): [
        ["policy", "policy_digest", "assignor", "assignor_digest"],
        ["declined_warmups"],
    ],
}
# The vectors that end before some of these fields, and how many of these groups they have.
_ENDS_EARLY = {
    "v1-ends-after-user-data": 0,
    "ends-before-declined-warmups": 0,
    "ends-before-policy": 1,
}


class CodecContract:
    """Reading and writing one kind of message."""

    kind: ClassVar[str]

    @property
    def vectors(self) -> list[Vector]:
        vectors = [vector for vector in load_vectors() if vector.kind == self.kind]
        assert vectors
        return vectors

    @property
    def ours(self) -> list[Vector]:
        """Return the vectors with a value: all but foreign user data."""
        return [vector for vector in self.vectors if vector.value is not None]

    @final
    def test_vectors_when_decoded_give_their_values(self) -> None:
        decoded = {vector.name: DECODERS[self.kind](vector.content) for vector in self.vectors}
        assert decoded == {
            vector.name: None if vector.value is None else value_of(self.kind, vector.value)
            for vector in self.vectors
        }

    @final
    def test_vectors_when_encoded_give_their_bytes(self) -> None:
        canonical = [vector for vector in self.ours if vector.canonical]
        assert {
            vector.name: encode(value_of(self.kind, vector.value or {}), vector.version).hex()
            for vector in canonical
        } == {vector.name: vector.content.hex() for vector in canonical}

    @final
    def test_schema_when_followed_gives_the_vectors(self) -> None:
        canonical = [vector for vector in self.ours if vector.canonical]
        assert [reference_encode(self.kind, vector.value or {}) for vector in canonical] == [
            vector.content for vector in canonical
        ]
        assert [reference_decode(self.kind, vector.content) for vector in canonical] == [
            (vector.value, len(vector.content)) for vector in canonical
        ]

    @final
    def test_vectors_when_cut_anywhere_are_refused(self) -> None:
        accepted, misplaced = [], []
        for vector in self.ours:
            for cut in range(len(MAGIC.get(self.kind, b"")), len(vector.content)):
                try:
                    DECODERS[self.kind](vector.content[:cut])
                except DecodeError as error:
                    if not 0 <= error.offset <= cut:
                        misplaced.append((vector.name, cut, error.offset))
                else:
                    accepted.append((vector.name, cut))
        assert (accepted, misplaced) == (
            [(vector.name, cut) for vector in self.ours for cut in _readable_cuts(vector)],
            [],
        )

    @final
    def test_lengths_when_impossible_are_refused_where_they_stand(self) -> None:
        wrong = []
        for vector in self.ours:
            lengths: list[Length] = []
            reference_decode(self.kind, vector.content, lengths)
            for length in lengths:
                most = 2 ** (8 * struct.calcsize(length.form) - 1) - 1
                for claim in [most, -most - 1, -2, *([] if length.nullable else [-1])]:
                    content = bytearray(vector.content)
                    struct.pack_into(length.form, content, length.offset, claim)
                    error = self._refusal(bytes(content))
                    if type(error) is not InvalidCountError or error.offset != length.offset:
                        wrong.append((vector.name, length, claim, error))
        assert wrong == []

    @final
    def test_malformed_vectors_when_decoded_are_refused_by_name_and_offset(self) -> None:
        malformed = [vector for vector in load_malformed() if vector.kind == self.kind]
        assert {
            vector.name: (type(error), error.offset)
            for vector in malformed
            if (error := self._refusal(vector.content)) is not None
        } == {vector.name: (getattr(errors, vector.error), vector.offset) for vector in malformed}

    @final
    def test_malformed_vectors_when_decoded_take_no_memory(self) -> None:
        malformed = [vector for vector in load_malformed() if vector.kind == self.kind]
        peaks = {}
        tracemalloc.start()
        try:
            for vector in malformed:
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                self._refusal(vector.content)
                peaks[vector.name] = tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()
        assert {name: peak for name, peak in peaks.items() if peak > _READ_BYTES_MAX} == {}

    def _refusal(self, content: bytes) -> DecodeError | None:
        with pytest.raises(DecodeError) as refused:
            DECODERS[self.kind](content)
        return refused.value


def _readable_cuts(vector: Vector) -> list[int]:
    """Return the lengths at which a vector may be cut and still be a message."""
    _, used = reference_decode(vector.kind, vector.content)
    cuts = list(range(used, len(vector.content)))  # fields of later versions
    ends = _OPTIONAL_ENDS.get((vector.kind, vector.version), [])
    for names in ends[len(ends) - _ENDS_EARLY.get(vector.name, len(ends)) :]:
        used -= sum(_bytes_of((vector.value or {})[name], name) for name in names)
        cuts.insert(0, used)
    return cuts


def _bytes_of(value: Any, name: str) -> int:  # noqa: ANN401 - any field of any row
    if isinstance(value, dict):
        return 4 + sum(6 + len(key.encode()) + 4 * len(items) for key, items in value.items())
    return 8 if name.endswith("_digest") else 2 + len((value or "").encode())
