"""A small writer of TensorBoard event files, byte by byte, for tests."""

import struct
from pathlib import Path

TIME = 1_700_000_000.0


def crc32c(data: bytes) -> int:
    """Compute the masked checksum of TFRecord files one bit at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(payload: bytes) -> bytes:
    length = struct.pack("<Q", len(payload))
    return length + struct.pack("<I", crc32c(length)) + payload + struct.pack("<I", crc32c(payload))


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    return bytes([*data, value])


def field(number: int, content: bytes | int | float) -> bytes:
    """Write one field: a message or text, a varint, or a double."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    if isinstance(content, float):
        return varint(number << 3 | 1) + struct.pack("<d", content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def simple(tag: str, value: float | bytes) -> bytes:
    """Write a value as torch does."""
    raw = value if isinstance(value, bytes) else struct.pack("<f", value)
    return field(1, tag.encode()) + varint(2 << 3 | 5) + raw


def tensor(tag: str, dtype: int, *parts: bytes, plugin: str = "scalars", shape: bytes = b"") -> bytes:
    """Write a value as TF2 does; the parts are fields of the tensor."""
    metadata = field(9, field(1, field(1, plugin.encode()))) if plugin else b""
    return field(1, tag.encode()) + field(8, field(1, dtype) + field(2, shape) + b"".join(parts)) + metadata


def event(step: int, *values: bytes, time: float = TIME) -> bytes:
    """Write the record of one event with all values of its summary."""
    summary = b"".join(field(1, value) for value in values)
    return record(field(1, time) + (field(2, step) if step else b"") + field(5, summary))


def header(time: float = TIME) -> bytes:
    return record(field(1, time) + field(3, b"brain.Event:2"))


def write_events(folder: Path, *records: bytes, time: float = TIME, name: str = "") -> Path:
    """Write an event file with its header."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (name or f"events.out.tfevents.{time:.0f}.node.7.0")
    path.write_bytes(header(time) + b"".join(records))
    return path


def losses(steps, time: float = TIME, tag: str = "loss", shift: float = 0.0) -> list[bytes]:
    """Write one event a second with a loss of 2 + step / 64."""
    return [event(step, simple(tag, 2 + step / 64 + shift), time=time + at) for at, step in enumerate(steps)]
