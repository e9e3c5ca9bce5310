"""Write codes as a PNG with a palette: a picture that every browser shows, made without a library."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode

import numpy as np

from detlab.views.palette import CODE_COLOURS
from detlab.views.pooling import Codes

_PALETTE_COLOUR = 3
"""The PNG colour type of pixels that are indices into a palette."""


def png(codes: Codes) -> bytes:
    """Write one pixel per cell, coloured by verdict and empty where nothing was recorded."""
    height, width = codes.shape
    palette = bytes(channel for colour in CODE_COLOURS for channel in colour[:3])
    opacity = bytes(colour[3] for colour in CODE_COLOURS)
    lines = np.zeros((height, width + 1), np.uint8)  # each line begins with its filter, 0: none
    lines[:, 1:] = codes
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, _PALETTE_COLOUR, 0, 0, 0)),
        (b"PLTE", palette),
        (b"tRNS", opacity),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, content) for name, content in chunks)


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def data_uri(codes: Codes) -> str:
    """Give the picture as an address that needs no request."""
    return f"data:image/png;base64,{b64encode(png(codes)).decode()}"
