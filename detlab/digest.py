"""The bits of tensors and scalars as 64-bit numbers.

A *digest* is xxh3-64 over the bytes of one tensor, in its logical (row-major) order. A *fold* is
xxh3-64 over the digests, dtypes and shapes of many, in order, and over scalars as exact text, so that
a swap, a reshape or another loss scale is seen.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from xxhash import xxh3_64, xxh3_64_intdigest, xxh3_128_hexdigest

if TYPE_CHECKING:
    import torch

ALGORITHM: Final = "xxh3-64"
"""What the digests of this version are; digests of different algorithms are never compared."""

_EMPTY: Final = xxh3_64_intdigest(b"")
_ZEROS: Final = 1 << 20
_pack_digest = struct.Struct("<Q").pack


def tensor_digest(tensor: torch.Tensor) -> int:
    """Hash every byte of a tensor; 0.0 and -0.0 differ, and so do two NaNs of other payload.

    Parameters
    ----------
    tensor
        Any dense tensor with a storage, on any device; strides do not matter, values do.
        Conjugate and negative views are resolved first.

    Raises
    ------
    TypeError
        The tensor has no storage to read (a wrapper subclass, a sparse or a meta tensor).
    """
    plain = plain_cpu_bytes(tensor)
    size = plain.numel() * plain.element_size()
    if size == 0:
        return _EMPTY
    address = plain.data_ptr()
    if address == 0:  # reading from it would end the process, see _c10d_functional's wrappers
        raise TypeError(f"a {type(tensor).__name__} without storage has no bytes to hash")
    return int(xxh3_64_intdigest((ctypes.c_char * size).from_address(address)))


def bytes_digest(data: bytes | memoryview) -> str:
    """Give the hexadecimal xxh3-128 digest of bytes that are too many to be shown."""
    return str(xxh3_128_hexdigest(data))


def plain_cpu_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Give a contiguous CPU tensor of the same values; the tensor itself where it is one already."""
    import torch

    if tensor.layout is not torch.strided or tensor.is_meta:
        raise TypeError(f"a {tensor.layout} tensor on {tensor.device} has no plain bytes to hash")
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    if not tensor.is_cpu:
        tensor = tensor.cpu()
    return tensor if tensor.is_contiguous() else tensor.contiguous()


@lru_cache(maxsize=4096)
def zeros_digest(num_bytes: int) -> int:
    """Give the digest of a tensor of so many bytes that are all zero."""
    found, chunk = xxh3_64(), bytes(min(num_bytes, _ZEROS))
    for _ in range(num_bytes // _ZEROS):
        found.update(chunk)
    found.update(chunk[: num_bytes % _ZEROS])
    return int(found.intdigest())


@lru_cache(maxsize=65_536)
def signature(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Write dtype and shape as the bytes that a fold takes, for example ``float32[2,3];``."""
    return f"{dtype}[{','.join(map(str, shape))}];".encode()


def fold(tensors: Iterable[tuple[int, bytes]], scalars: Sequence[object] = ()) -> int:
    """Fold many digests into one; order, number, dtype and shape count.

    Parameters
    ----------
    tensors
        For each tensor its digest and its `signature`.
    scalars
        Numbers, strings and lists of them, folded by their exact text (floats in hexadecimal).
    """
    parts = [_pack_digest(digest) + sign for digest, sign in tensors]
    if scalars:
        parts.append(scalar_text(scalars).encode())
    return int(xxh3_64_intdigest(b"".join(parts)))


def scalar_text(value: object) -> str:
    """Write a scalar so that two texts are equal just when the values are the same bits."""
    if isinstance(value, float):
        return f"nan:{struct.pack('<d', value).hex()}" if math.isnan(value) else value.hex()
    if isinstance(value, complex):
        return f"({scalar_text(value.real)},{scalar_text(value.imag)})"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(scalar_text, value)) + "]"
    return repr(value)
