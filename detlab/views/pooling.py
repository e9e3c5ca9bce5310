"""Shrink verdicts to a picture: the worst of many calls wins, and what was not recorded stays apart.

Cells hold *codes*: 0 where no call was recorded, else 1 + `Verdict`, so that the worst is the maximum.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from detlab.schema import Mask, Verdict

Codes = NDArray[np.uint8]

UNTRACED: Final = 0
MATCH: Final = 1 + Verdict.MATCH
ORIGIN: Final = 1 + Verdict.ORIGIN

MAX_ROWS: Final = 500
MAX_COLUMNS: Final = 1500
"""No picture has more cells: a screen cannot show them, and plotly and the browser suffer."""


def codes_of(verdicts: NDArray[np.uint8], masks: NDArray[np.uint8]) -> Codes:
    """Give the code of each call; what is set aside is not shown as a divergence."""
    if not masks.max(initial=0):
        return verdicts + np.uint8(1)
    # multiplying by 0 or 1 is many times faster than picking the masked ones
    codes: Codes = verdicts * without(masks, Mask.SET_ASIDE) + np.uint8(1)
    codes *= without(masks, Mask.UNTRACED)
    return codes


def without(masks: NDArray[np.uint8], mask: Mask) -> NDArray[np.uint8]:
    """Give 1 where a mask is not set, else 0."""
    free: NDArray[np.uint8] = ((masks & np.uint8(mask)) == 0).view(np.uint8)
    return free


def factor_for(size: int, limit: int) -> int:
    """Give the least number of neighbours to pool so that at most ``limit`` cells are left."""
    return max(1, -(-size // limit))
