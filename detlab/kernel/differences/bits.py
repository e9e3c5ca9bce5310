"""The bits of two tensors side by side: which elements differ, and by how many units in the last place."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

COMPONENT: Final = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}
"""What the two parts of a complex number are."""

_PIECE: Final = 1 << 22

_NO_SIGN: Final = (torch.float8_e8m0fnu,)
PACKED: Final = (torch.float4_e2m1fn_x2,)
"""Two values a byte: their bits are compared, no distance is told."""


def float_component(dtype: torch.dtype) -> torch.dtype | None:
    """Give the dtype of an element, of a complex one that of its parts; None where no distance is told."""
    component = COMPONENT.get(dtype, dtype)
    return component if component.is_floating_point and component not in PACKED else None


def ulp_distance(a: torch.Tensor, b: torch.Tensor) -> NDArray[np.uint64]:
    """Count the steps from one representable number to the next between each two; of a NaN it means nothing.

    Parameters
    ----------
    a, b
        Contiguous float tensors on the CPU of one dtype and shape.
    """
    x, y = _ordered(a), _ordered(b)
    distance: NDArray[np.uint64] = np.maximum(x, y) - np.minimum(x, y)
    return distance


def quantum_log2(a: NDArray[np.float64], b: NDArray[np.float64]) -> tuple[int | None, bool]:
    """Find the largest power of two of which every ``b - a`` is an integer multiple.

    Returns
    -------
    Its exponent, None when nothing differs; and whether every difference was exact, without which it means
    nothing (the exact difference of two float64 may need more than 53 bits).
    """
    with np.errstate(over="ignore", invalid="ignore"):
        difference = b - a
        # TwoSum (Knuth, The Art of Computer Programming 2, 4.2.2) gives the rounding error, exactly.
        subtracted = difference - b
        error = (b - (difference - subtracted)) - (a + subtracted)
    nonzero = difference[difference != 0.0]
    if error.any() or not np.isfinite(difference).all():
        return None, False
    if not nonzero.size:
        return None, True
    mantissa, exponent = np.frexp(nonzero)
    integer = np.abs(mantissa * 2.0**53).astype(np.int64)
    lowest_bit = np.frexp((integer & -integer).astype(np.float64))[1] - 1
    return int((exponent - 53 + lowest_bit).min()), True


def precision(dtype: torch.dtype) -> int:
    """Give the number of bits of a float's significand, the hidden one included: 24 of float32."""
    return 1 - int(np.frexp(torch.finfo(dtype).eps)[1] - 1)


def finest_spacing_log2(values: NDArray[np.float64], dtype: torch.dtype) -> int | None:
    """Give the exponent of the smallest unit in the last place that any of the numbers has; 0.0 has none.

    Parameters
    ----------
    values
        Finite numbers of that dtype, as float64.
    """
    nonzero = values[values != 0.0]
    if not nonzero.size:
        return None
    subnormal = int(np.frexp(torch.finfo(dtype).smallest_normal)[1]) - precision(dtype)
    return max(int(np.frexp(np.abs(nonzero).min())[1]) - precision(dtype), subnormal)


def count_nan(tensor: torch.Tensor) -> int:
    """Count the NaNs of a tensor piece by piece, so that a large one takes no memory of its size.

    Eight-bit and packed floats are looked at as far as torch can; of other dtypes there are none.
    """
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return 0
    try:
        pieces = torch.split(tensor.detach().reshape(-1), _PIECE)
        return sum(int(torch.count_nonzero(torch.isnan(piece))) for piece in pieces)
    except (RuntimeError, NotImplementedError):
        return 0


def words(tensor: torch.Tensor) -> NDArray[Any]:
    """View a contiguous CPU tensor as unsigned integers, one row an element; 16 bytes are two of them."""
    size = min(tensor.element_size(), 8)
    raw = tensor.reshape(-1).view(torch.uint8).numpy()
    return raw.view(f"<u{size}").reshape(tensor.numel(), tensor.element_size() // size)


def differing(a: torch.Tensor, b: torch.Tensor) -> NDArray[np.bool_]:
    """Say of each element of two contiguous CPU tensors whether its bits differ."""
    x, y = words(a), words(b)
    if x.shape[1] == 1:  # the same, and much faster than asking along an axis of one
        return np.asarray(x[:, 0] != y[:, 0])
    differs: NDArray[np.bool_] = (x != y).any(axis=1)
    return differs


def chosen_numbers(
    tensor: torch.Tensor, chosen: NDArray[np.bool_] | NDArray[np.intp], component: torch.dtype
) -> torch.Tensor:
    """Give the chosen elements as floats of one dimension, of a complex one both parts."""
    raw = words(tensor)[chosen].reshape(-1).view(np.uint8)
    return torch.from_numpy(raw).view(component)


def _ordered(tensor: torch.Tensor) -> NDArray[np.uint64]:
    """Map floats to integers in their order, with 0.0 and -0.0 on the same one."""
    bits = words(tensor)[:, 0].astype(np.uint64)
    if tensor.dtype in _NO_SIGN:
        return bits
    sign = np.uint64(1 << (8 * tensor.element_size() - 1))
    magnitude = bits & (sign - np.uint64(1))
    ordered: NDArray[np.uint64] = np.where(bits & sign, sign - magnitude, sign + magnitude)
    return ordered
