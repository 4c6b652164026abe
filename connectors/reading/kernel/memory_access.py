"""Unaligned loads and stores, and tests of many bytes at once, compiled to few machine instructions.

numba alone would assemble a word from single bytes, with a bounds check for each. The caller must ensure that positions
are valid: reads may extend up to `PADDING` bytes beyond a value, and writes up to `OVERWRITE` bytes beyond a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from commitlake.connectors.reading.kernel.compile_options import emitted

PADDING = 64
"""Number of readable bytes needed after the last byte of a window."""
OVERWRITE = 32
"""Number of writable bytes needed after the last byte of a copy."""

_BYTE, _WORD = ir.IntType(8), ir.IntType(64)


def _emit_address(context: Any, builder: Any, array_type: Any, array: Any, position: Any, target_type: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [position]), target_type.as_pointer())


def _make_number_loader(result_type: Any, swaps_bytes: bool) -> Callable[..., Any]:
    def load_number_intrinsic(typing_context: Any, window: Any, position: Any) -> Any:
        def emit_number_load(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word = ir.IntType(result_type.bitwidth)
            address = _emit_address(context, builder, signature.args[0], arguments[0], arguments[1], word)
            loaded = builder.load(address, align=1)
            return builder.bswap(loaded) if swaps_bytes else loaded

        return result_type(window, types.int64), emit_number_load

    return load_number_intrinsic


load_u8 = emitted(_make_number_loader(types.uint8, swaps_bytes=False))
load_be_i16 = emitted(_make_number_loader(types.int16, swaps_bytes=True))
load_be_i32 = emitted(_make_number_loader(types.int32, swaps_bytes=True))
load_be_i64 = emitted(_make_number_loader(types.int64, swaps_bytes=True))
load_le_u64 = emitted(_make_number_loader(types.uint64, swaps_bytes=False))


@emitted
def store_be_u64(typing_context, out, position, value):
    """Write eight bytes, most significant first."""

    def emit_swapped_store(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, at, word = arguments
        address = _emit_address(context, builder, signature.args[0], array, at, _WORD)
        builder.store(builder.bswap(word), address, align=1)
        return context.get_dummy_value()

    return types.void(out, types.int64, types.uint64), emit_swapped_store


@emitted
def copy_32_bytes(typing_context, window, position, out, out_position):
    """Copy 32 bytes at once, even if the caller needs only the first few."""

    def emit_vector_copy(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(_BYTE, OVERWRITE)
        from_address = _emit_address(context, builder, signature.args[0], arguments[0], arguments[1], vector)
        to_address = _emit_address(context, builder, signature.args[2], arguments[2], arguments[3], vector)
        builder.store(builder.load(from_address, align=1), to_address, align=1)
        return context.get_dummy_value()

    return types.void(window, types.int64, out, types.int64), emit_vector_copy


def _emit_broadcast(builder: Any, vector_type: Any, value: Any) -> Any:
    """Emit a vector with the same value in each element."""
    one = builder.insert_element(ir.Constant(vector_type, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), vector_type.count), [0] * vector_type.count)
    return builder.shuffle_vector(one, one, mask)


def _emit_bit_mask(builder: Any, flags: Any) -> Any:
    return builder.bitcast(flags, _WORD)


@emitted
def mask_equal_and_non_ascii(typing_context, window, position, first, second, third):
    """Return two bit masks for the next 64 bytes: bytes equal to one of three values, and non-ASCII bytes."""

    def emit_two_bit_masks(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(_BYTE, 64)
        address = _emit_address(context, builder, signature.args[0], arguments[0], arguments[1], vector)
        loaded = builder.load(address, align=1)
        equal = [builder.icmp_signed("==", loaded, _emit_broadcast(builder, vector, value)) for value in arguments[2:]]
        marks = builder.or_(builder.or_(equal[0], equal[1]), equal[2])
        # As signed numbers, the bytes from 0x80 on are negative.
        others = builder.icmp_signed("<", loaded, ir.Constant(vector, [0] * 64))
        pair = context.get_value_type(signature.return_type)
        found = builder.insert_value(ir.Constant(pair, ir.Undefined), _emit_bit_mask(builder, marks), 0)
        return builder.insert_value(found, _emit_bit_mask(builder, others), 1)

    result = types.UniTuple(types.uint64, 2)
    return result(window, types.int64, types.uint8, types.uint8, types.uint8), emit_two_bit_masks


@emitted
def mask_equal_bytes(typing_context, window, position, first, second):
    """Return a bit mask of those of the next 64 bytes that are equal to one of two values."""

    def emit_equality_mask(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(_BYTE, 64)
        address = _emit_address(context, builder, signature.args[0], arguments[0], arguments[1], vector)
        loaded = builder.load(address, align=1)
        found = [builder.icmp_signed("==", loaded, _emit_broadcast(builder, vector, value)) for value in arguments[2:]]
        return _emit_bit_mask(builder, builder.or_(*found))

    return types.uint64(window, types.int64, types.uint8, types.uint8), emit_equality_mask


@emitted
def has_nonzero_byte(typing_context, window, position):
    """Return whether one of the next 64 bytes is not zero."""

    def emit_zero_comparison(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(512)
        address = _emit_address(context, builder, signature.args[0], arguments[0], arguments[1], word)
        return builder.icmp_unsigned("!=", builder.load(address, align=1), ir.Constant(word, 0))

    return types.boolean(window, types.int64), emit_zero_comparison


@emitted
def lowest_set_bit_index(typing_context, mask):
    """Return the index of the lowest set bit of a mask that is not zero."""

    def emit_trailing_zero_count(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        # The 1 leaves the result for zero undefined, which saves a test.
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), emit_trailing_zero_count
