"""A look at 64 bytes of properties at once, as a few machine instructions.

See `connectors.formats.engine.kernel.memory`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from commitlake.connectors.formats.engine.kernel.compiled import emitted

NEWLINE, EQUALS, BACKSLASH = ord("\n"), ord("="), ord("\\")
_LANES = 64


@emitted
def find_marks(typing_context, window, position):
    """Of the next 64 bytes, as bits: which are a newline, a `=` or a backslash, and which are not ASCII."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector, word = ir.VectorType(ir.IntType(8), _LANES), ir.IntType(_LANES)
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(data, [arguments[1]]), vector.as_pointer())
        loaded = builder.load(address, align=1)

        def equal(value: int) -> Any:
            return builder.icmp_signed("==", loaded, ir.Constant(vector, [value] * _LANES))

        found = builder.or_(builder.or_(equal(NEWLINE), equal(EQUALS)), equal(BACKSLASH))
        others = builder.icmp_signed("<", loaded, ir.Constant(vector, [0] * _LANES))
        pair = context.get_value_type(signature.return_type)
        both = builder.insert_value(ir.Constant(pair, ir.Undefined), builder.bitcast(found, word), 0)
        return builder.insert_value(both, builder.bitcast(others, word), 1)

    return types.UniTuple(types.uint64, 2)(window, types.int64), generate
