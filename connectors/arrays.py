"""The type of numpy arrays in signatures.

`Array` does not say what an array's elements are. The docstring of each function does: compiled functions take an array
of bytes for most things, and mypy cannot check what numba makes of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
