"""Whether two sets of measurements differ by more than chance: Mann-Whitney's U test, and Holm's correction.

Durations are skewed and have outliers, so ranks are compared rather than means. The normal approximation with
corrections for ties and continuity is used (Mann and Whitney 1947; Holm 1979).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

#: Fewer measurements on a side cannot tell; the normal approximation is poor below this.
FEWEST = 8


def mann_whitney(left: npt.ArrayLike, right: npt.ArrayLike) -> float | None:
    """Return the two-sided p value of the hypothesis that both come from one distribution; None when too few."""
    a, b = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    if min(a.size, b.size) < FEWEST:
        return None
    _, which, counts = np.unique(np.concatenate((a, b)), return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2  # equal values share the mean of their ranks
    u = float(ranks[which[: a.size]].sum()) - a.size * (a.size + 1) / 2
    total = a.size + b.size
    ties = float((counts.astype(np.float64) ** 3 - counts).sum()) / (total * (total - 1))
    variance = a.size * b.size / 12 * (total + 1 - ties)
    if variance <= 0:  # all values are equal
        return 1.0
    distance = max(abs(u - a.size * b.size / 2) - 0.5, 0.0)
    return math.erfc(distance / math.sqrt(2 * variance))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Correct p values of many tests at once, so that a long table has no chance findings; None stays None."""
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for position, (p, i) in enumerate(known):
        highest = max(highest, min(1.0, p * (len(known) - position)))
        corrected[i] = highest
    return corrected
