"""How long it takes until something happens: importing detlab beside polars, and asking for help."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

REPEATS = 7


def seconds(*arguments: str) -> float:
    """Give the median wall time of a fresh Python process."""
    taken = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def main() -> None:
    """Print the table."""
    bare = seconds("-c", "pass")
    rows = {
        "import detlab": seconds("-c", "import detlab"),
        "import polars": seconds("-c", "import polars"),
        "detlab --help": seconds("-m", "detlab", "--help"),
    }
    print(f"\nstarting, milliseconds beyond a bare interpreter ({1000 * bare:.0f} ms), median of {REPEATS}")
    for what, taken in rows.items():
        print(f"  {what:<42} {1000 * (taken - bare):>12.1f}")


if __name__ == "__main__":
    main()
