"""Unaligned loads from a byte array, as one machine instruction each.

numba alone would build a word from single bytes with a bounds rule for each. The caller vouches for the position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def _loader(result: Any, swap: bool) -> Callable[..., Any]:
    def implementation(typing_context: Any, window: Any, position: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            word = ir.IntType(result.bitwidth)
            address = builder.gep(array.data, [arguments[1]])
            loaded = builder.load(builder.bitcast(address, word.as_pointer()), align=1)
            return builder.bswap(loaded) if swap else loaded

        return result(window, types.int64), generate

    return implementation


load_be_i16 = intrinsic(_loader(types.int16, swap=True))
load_be_i32 = intrinsic(_loader(types.int32, swap=True))
load_be_i64 = intrinsic(_loader(types.int64, swap=True))
load_le_u64 = intrinsic(_loader(types.uint64, swap=False))
