"""Compilation options and decorators of the kernel's functions.

Compiled code is kept, see `function_cache`; `jobs.cli.warm` fills that cache at set-up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from numba import njit
from numba.core import sigutils
from numba.core.ccallback import CFunc
from numba.core.dispatcher import Dispatcher
from numba.extending import intrinsic

from commitlake.connectors.reading.kernel.function_cache import function_cache

_P = ParamSpec("_P")
_R = TypeVar("_R")

LINKED_OPTIONS: dict[str, Any] = {
    "nogil": True,
    # The kernel never allocates, and counting references would cost more than all other work on a record.
    "_nrt": False,
    # Without Python's check for a division by zero, which would be a branch at each division.
    "error_model": "numpy",
}
"""Options of each function that is part of a cached one."""


class _FunctionDecorator(Protocol):
    """Type of a decorator that keeps a function's signature, so that mypy checks callers."""

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]: ...


def _cached_njit(**options: Any) -> _FunctionDecorator:
    def compile_with_cache(function: Callable[_P, _R]) -> Callable[_P, _R]:
        dispatcher: Any = njit(**options)(function)
        is_compiled = isinstance(dispatcher, Dispatcher)  # false with NUMBA_DISABLE_JIT
        if is_compiled and (cache := function_cache(function)) is not None:
            dispatcher._cache = cache  # noqa: SLF001 (like Dispatcher.enable_caching does, in numba's own folder)
        return cast("Callable[_P, _R]", dispatcher)

    return compile_with_cache


compiled = _cached_njit(**LINKED_OPTIONS)
"""Decorator of a function of the kernel."""
inlined = _cached_njit(forceinline=True, **LINKED_OPTIONS)
"""Decorator of a small function, which becomes part of those that call it."""
emitted: Callable[[Callable[..., Any]], Callable[..., Any]] = intrinsic
"""Decorator of a function that emits LLVM instructions itself."""


def compiled_callback(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles a C callback with this signature."""

    def compile_as_callback(function: Callable[..., Any]) -> Any:
        callback: Any = CFunc(function, sigutils.normalize_signature(signature), locals={}, options={})
        if (cache := function_cache(function)) is not None:
            callback._cache = cache  # noqa: SLF001 (like CFunc.enable_caching does, in numba's own folder)
        callback.compile()
        return callback

    return compile_as_callback
