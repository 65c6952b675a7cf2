"""The tree of RFC 6962, against the vectors that its first implementation published."""

from __future__ import annotations

import hashlib
from functools import partial

import pytest

from holdfast_systems.passport import merkle

pytestmark = pytest.mark.heavy

LEAVES = [
    bytes.fromhex(leaf)
    for leaf in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657",
                 "606162636465666768696a6b6c6d6e6f")
]  # fmt: skip
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
# (leaf, size of the tree): the hashes beside its way up.
PATHS = {
    (0, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (5, 8): [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (0, 1): [],
}
TREES = [[bytes([leaf]) for leaf in range(size)] for size in range(1, 18)]


def root_by_definition(leaves: list[bytes]) -> bytes:
    """As RFC 6962 defines it: split at the largest power of two that is smaller."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\0" + leaves[0]).digest()
    half = 1 << (len(leaves) - 1).bit_length() - 1
    parts = root_by_definition(leaves[:half]), root_by_definition(leaves[half:])
    return hashlib.sha256(b"\1" + b"".join(parts)).digest()


@pytest.mark.parametrize("size", range(9))
def test_roots_are_those_of_the_published_vectors(size: int) -> None:
    assert merkle.root(LEAVES[:size]).hex() == ROOTS[size]


@pytest.mark.parametrize(("place", "path"), PATHS.items())
def test_proofs_are_those_of_the_published_vectors(place: tuple[int, int], path: list[str]) -> None:
    index, size = place
    assert [each.hex() for each in merkle.inclusion_proof(LEAVES[:size], index)] == path


def test_the_root_follows_its_definition() -> None:
    for leaves in TREES:
        assert merkle.root(leaves) == root_by_definition(leaves)


def test_every_leaf_can_be_proved_and_nothing_else() -> None:
    for leaves in TREES:
        root = merkle.root(leaves)
        for index, leaf in enumerate(leaves):
            proved = partial(merkle.root_from_proof, index=index, size=len(leaves))
            proof = merkle.inclusion_proof(leaves, index)
            assert proved(leaf, proof=proof) == root
            assert proved(leaf + b"!", proof=proof) != root
            assert proved(leaf, proof=[*proof, root]) is None
            for place, beside in enumerate(proof):
                above, below = proof[:place], proof[place + 1 :]
                assert proved(leaf, proof=above + below) is None
                bent = bytes([beside[0] ^ 1]) + beside[1:]
                assert proved(leaf, proof=[*above, bent, *below]) != root


def test_a_proof_holds_at_its_own_place_only() -> None:
    for leaves in TREES:
        size, root = len(leaves), merkle.root(leaves)
        for index, leaf in enumerate(leaves):
            proof = merkle.inclusion_proof(leaves, index)
            holds = [
                place
                for place in range(-1, size + 1)
                if merkle.root_from_proof(leaf, place, size, proof) == root
            ]
            assert holds == [index]


def test_a_node_can_not_pass_for_a_leaf() -> None:
    left, right = merkle.leaf_hash(b"a"), merkle.leaf_hash(b"b")
    assert merkle.root([left + right]) != merkle.root([b"a", b"b"])


def test_a_leaf_that_is_not_there_has_no_proof() -> None:
    with pytest.raises(IndexError):
        merkle.inclusion_proof(LEAVES, len(LEAVES))
    with pytest.raises(IndexError):
        merkle.inclusion_proof([], 0)
