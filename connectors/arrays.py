"""The type of numpy arrays in signatures.

`Array` does not state the type of an array's elements. The docstring of each function does: compiled functions mostly
take arrays of bytes, and mypy cannot check numba's compiled code.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
