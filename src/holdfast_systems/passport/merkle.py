"""A Merkle tree (RFC 6962), and the proof that a leaf is in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast_systems.passport.canonical import sha256

# Leaves and nodes have different prefixes, so that a node can't pass for a leaf.
_LEAF = b"\x00"
_NODE = b"\x01"


def leaf_hash(leaf: bytes) -> bytes:
    return sha256(_LEAF + leaf)


def root(leaves: Sequence[bytes]) -> bytes:
    hashes = [leaf_hash(leaf) for leaf in leaves]
    return _levels(hashes)[-1][0] if hashes else sha256(b"")


def inclusion_proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Return the sibling hashes on the path from the leaf to the root, bottom up."""
    return prover(leaves)(index)


def prover(leaves: Sequence[bytes]) -> Callable[[int], list[bytes]]:
    """Return `inclusion_proof` for many leaves of one tree, which is hashed once."""
    levels = _levels([leaf_hash(leaf) for leaf in leaves])

    def prove(index: int) -> list[bytes]:
        if not 0 <= index < len(leaves):
            raise IndexError(f"no leaf {index} in a tree of {len(leaves)}")
        proof = []
        for level in levels[:-1]:
            beside = index ^ 1
            if beside < len(level):
                proof.append(level[beside])
            index //= 2
        return proof

    return prove


def root_from_proof(leaf: bytes, index: int, size: int, proof: Sequence[bytes]) -> bytes | None:
    """Compute the root from a proof; None if the proof has the wrong length."""
    if not 0 <= index < size:
        return None
    found = leaf_hash(leaf)
    last = size - 1
    rest = list(proof)
    while last:
        if index % 2 or index < last:
            if not rest:
                return None
            beside = rest.pop(0)
            found = _node_hash(beside, found) if index % 2 else _node_hash(found, beside)
        index //= 2
        last //= 2
    return None if rest else found


def _node_hash(left: bytes, right: bytes) -> bytes:
    return sha256(_NODE + left + right)


def _levels(hashes: list[bytes]) -> list[list[bytes]]:
    """Return all levels, leaves first. A node without a sibling moves up unchanged."""
    levels = [hashes]
    while len(levels[-1]) > 1:
        below = levels[-1]
        above = [_node_hash(below[i], below[i + 1]) for i in range(0, len(below) - 1, 2)]
        levels.append(above + below[len(above) * 2 :])
    return levels
