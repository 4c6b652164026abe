"""The type of numpy arrays in signatures, and read-only views of arrays.

`Array` does not state the type of an array's elements. The docstring of each function does: compiled functions mostly
take arrays of bytes, and mypy cannot check numba's compiled code.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def read_only_view(values: Array) -> Array:
    """Return a read-only view of an array.

    numba compiles a function once for such arrays, as Arrow's are, and once for others. Callers that have both pass all
    of them as such views.
    """
    view = values.view()
    view.flags.writeable = False
    return view
