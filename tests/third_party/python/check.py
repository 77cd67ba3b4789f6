"""Checks a published audit log with nothing of ours: hashlib for the tree, PyPI cryptography for signatures.

Both lines of the checkpoint are verified, the Ed25519 one over the text and the ML-DSA-44 cosignature over
tree head and time; the root is rebuilt from all entries, every hash tile is compared, and an older
checkpoint must be a prefix.

Usage: check.py DIR KEYS [OLDER]. Says nothing and ends with 0, or says in one line what is wrong.
"""

import base64
import hashlib
import struct
import sys
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PublicKey

ED25519, ML_DSA_44 = 1, 6
WIDTH = 256


class Wrong(Exception):
    pass


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def read_keys(path):
    """Each key as (name, id, kind, public bytes); the id is computed, not believed."""
    keys = []
    for line in Path(path).read_text().split():
        name, said, encoded = line.split("+", 2)
        key = base64.b64decode(encoded, validate=True)
        key_id = sha256(name.encode(), b"\n", key)[:4]
        if key_id.hex() != said:
            raise Wrong(f"key id {said} is not that of the key")
        keys.append((name, key_id, key[0], key[1:]))
    if [key[2] for key in keys] != [ED25519, ML_DSA_44]:
        raise Wrong("an Ed25519 key, then an ML-DSA-44 key are needed")
    return keys


def open_checkpoint(path, keys):
    """Verifies every key's line and gives (size, root)."""
    text, _, lines = Path(path).read_bytes().decode().rpartition("\n\n")
    text += "\n"
    origin, size, root = text.split("\n")[:3]
    size, root = int(size), base64.b64decode(root, validate=True)
    if origin != keys[0][0] or len(root) != 32:
        raise Wrong("not a checkpoint of this log")
    signatures = {}
    for line in lines.splitlines():
        dash, name, encoded = line.split(" ")
        if dash != "\u2014":
            raise Wrong("a line that is no signature")
        signature = base64.b64decode(encoded, validate=True)
        signatures[(name, signature[:4])] = signature[4:]
    for name, key_id, kind, public in keys:
        signature = signatures.get((name, key_id))
        if signature is None:
            raise Wrong(f"no signature of {key_id.hex()}")
        try:
            if kind == ED25519:
                Ed25519PublicKey.from_public_bytes(public).verify(signature, text.encode())
            else:
                message = cosigned(name, signature[:8], origin, size, root)
                MLDSA44PublicKey.from_public_bytes(public).verify(signature[8:], message)
        except InvalidSignature as error:
            raise Wrong(f"the signature of {key_id.hex()} does not verify") from error
    return size, root


def cosigned(name, time, origin, size, root):
    """The message of a C2SP tlog-cosignature with ML-DSA-44."""
    name, origin = name.encode(), origin.encode()
    return b"".join(
        [
            b"subtree/v1\n\0",
            bytes([len(name)]),
            name,
            time,
            bytes([len(origin)]),
            origin,
            struct.pack(">QQ", 0, size),
            root,
        ]
    )


def tile_path(directory, kind, index, width):
    name = f"{index % 1000:03}"
    while index >= 1000:
        index //= 1000
        name = f"x{index % 1000:03}/{name}"
    partial = "" if width == WIDTH else f".p/{width}"
    return directory / "tile" / str(kind) / f"{name}{partial}"


def entries(directory, size):
    for first in range(0, size, WIDTH):
        width = min(WIDTH, size - first)
        bundle = tile_path(directory, "entries", first // WIDTH, width).read_bytes()
        at = 0
        for index in range(first, first + width):
            (length,) = struct.unpack_from(">H", bundle, at)
            entry = bundle[at + 2 : at + 2 + length]
            if len(entry) < length:
                raise Wrong(f"entry {index} is cut off")
            yield entry
            at += 2 + length
        if at != len(bundle):
            raise Wrong(f"bytes behind entry {first + width - 1}")


class Tree:
    """The right edge of the tree, and the hashes of each tile level as they come."""

    def __init__(self):
        self.peaks = []  # (size, hash), largest first
        self.levels = []

    def push(self, entry):
        size, node = 1, sha256(b"\0", entry)
        self.level(0, node)
        while self.peaks and self.peaks[-1][0] == size:
            node = sha256(b"\1", self.peaks.pop()[1], node)
            size *= 2
            # A complete tree of 256^n entries is a hash of tile level n.
            bits = size.bit_length() - 1
            if bits % 8 == 0:
                self.level(bits // 8, node)
        self.peaks.append((size, node))

    def level(self, level, node):
        while len(self.levels) <= level:
            self.levels.append([])
        self.levels[level].append(node)

    def root(self):
        if not self.peaks:
            return sha256()
        node = self.peaks[-1][1]
        for _, left in reversed(self.peaks[:-1]):
            node = sha256(b"\1", left, node)
        return node


def check(directory, keys_path, older_path=None):
    directory = Path(directory)
    keys = read_keys(keys_path)
    size, root = open_checkpoint(directory / "checkpoint", keys)
    older = open_checkpoint(older_path, keys) if older_path else (0, sha256())
    if older[0] > size:
        raise Wrong(f"the older checkpoint covers {older[0]} entries, this one {size}")
    tree = Tree()
    for index, entry in enumerate(entries(directory, size)):
        if index == older[0] and tree.root() != older[1]:
            raise Wrong("the older checkpoint is no prefix")
        tree.push(entry)
    if size == older[0] and tree.root() != older[1]:
        raise Wrong("the older checkpoint is no prefix")
    if tree.root() != root:
        raise Wrong("the entries have another root")
    for level, hashes in enumerate(tree.levels):
        for first in range(0, len(hashes), WIDTH):
            expected = hashes[first : first + WIDTH]
            path = tile_path(directory, level, first // WIDTH, len(expected))
            if path.read_bytes() != b"".join(expected):
                raise Wrong(f"{path.relative_to(directory)} differs")


def main():
    try:
        check(*sys.argv[1:])
    except (Wrong, OSError, ValueError, struct.error) as error:
        sys.exit(f"{error}")


main()
