"""Checksums for the next process of a static member."""

from coopgroup.core.model import ResourceSet
from coopgroup.core.protocol.digests import names_digest, resources_digest


def test_digest_of_names_tells_them_apart() -> None:
    names = [(), ("a",), ("b",), ("a", "b"), ("ab",), ("a", "b", "c"), ("bé",)]
    assert len({names_digest(some) for some in names}) == len(names)
    assert names_digest(("orders",)) == 0x95550F0F


def test_digest_of_resources_tells_them_apart() -> None:
    some = [
        ResourceSet(indices)
        for indices in ({}, {"T": [0]}, {"T": [0, 1]}, {"T": [0], "U": [1]}, {"U": [0]})
    ]
    assert len({resources_digest(one) for one in some}) == len(some)
    assert resources_digest(ResourceSet({"T": [1, 0], "U": []})) == resources_digest(some[2])
