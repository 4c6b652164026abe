"""CRC-32 by carry-less multiplication, emitted as LLVM vector code, which numba cannot express in Python.

A block that lies n bits before another is multiplied by x^n modulo the polynomial and added to it. This does not change
the remainder of the whole. So the blocks of a long range are folded in independent lanes, then the lanes are folded
into one, and the remaining 128 bits are reduced by Barrett's method. The last bytes, fewer than a block, are folded
with the block that ends with the range, so nothing is processed byte by byte.

Source: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", 2009.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from commitlake.connectors.reading.kernel.compile_options import emitted

POLYNOMIAL = 0xEDB88320
BLOCK_SIZE = 16
"""Size of a block in bytes; the input must have at least one block."""

_LANES = 4
_LOW_WORDS = (0xFFFFFFFF, 0xFFFFFFFF)
_BYTE, _INT, _WORD, _WIDE = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.IntType(128)


def _power_of_x(exponent: int) -> int:
    """Return x^exponent modulo the CRC's polynomial, with reflected bits, as a factor for a 64-bit multiplication."""
    remainder = 1 << 31  # x^0, reflected
    for _ in range(exponent):
        remainder = (remainder >> 1) ^ (POLYNOMIAL if remainder & 1 else 0)
    # In reflected form, the product of two words is one bit too low. The multiplier, shifted by one, corrects this.
    return remainder << 1


def _fold_multipliers(distance_bytes: int) -> tuple[int, int]:
    """Return the two factors with which a block is moved forward by `distance_bytes` bytes in the CRC."""
    return _power_of_x(8 * distance_bytes + 32), _power_of_x(8 * distance_bytes - 32)


def _barrett_quotient() -> int:
    """Return Barrett's constant: x^64 divided by the CRC's polynomial, with reflected bits, 33 bits."""
    polynomial = int(f"{POLYNOMIAL:032b}"[::-1], 2) | 1 << 32
    dividend, quotient = 1 << 64, 0
    for bit in range(32, -1, -1):
        if dividend >> (bit + 32) & 1:
            dividend ^= polynomial << bit
            quotient |= 1 << bit
    return int(f"{quotient:033b}"[::-1], 2)


_REDUCE_TO_64 = (_power_of_x(64), 0)
_BARRETT = (POLYNOMIAL << 1 | 1, _barrett_quotient())


class _CrcFolder:
    """Emitter of LLVM code that folds (CRC-reduces) vectors of `blocks` blocks, each of two 64-bit words."""

    def __init__(self, builder: Any, blocks: int) -> None:
        self.builder = builder
        self.blocks = blocks
        self.size = blocks * BLOCK_SIZE
        self.vector = ir.VectorType(_WORD, 2 * blocks)
        signature = ir.FunctionType(self.vector, [self.vector, self.vector, _BYTE])
        name = "llvm.x86.pclmulqdq" + ("" if blocks == 1 else f".{128 * blocks}")
        self._multiply = cgutils.get_or_insert_function(builder.module, signature, name)

    def emit_constant(self, *pairs: tuple[int, int]) -> Any:
        """Emit a constant vector of the given blocks; a single block fills the whole vector."""
        chosen = pairs if len(pairs) == self.blocks else pairs * self.blocks
        return ir.Constant(self.vector, [ir.Constant(_WORD, word) for pair in chosen for word in pair])

    def emit_multiply(self, left: Any, right: Any, selector: int) -> Any:
        return self.builder.call(self._multiply, [left, right, ir.Constant(_BYTE, selector)])

    def emit_load(self, address: Any) -> Any:
        return self.builder.load(self.builder.bitcast(address, self.vector.as_pointer()), align=1)

    def emit_seeded_vector(self, vector: Any, crc_state: Any) -> Any:
        """Emit code that combines the CRC so far into the first bytes of the first input vector."""
        seed = self.builder.insert_element(self.emit_constant((0, 0)), crc_state, ir.Constant(_INT, 0))
        return self.builder.xor(vector, seed)

    def emit_shift(self, vector: Any, multipliers: Any) -> Any:
        low = self.emit_multiply(vector, multipliers, 0x00)
        return self.builder.xor(low, self.emit_multiply(vector, multipliers, 0x11))

    def emit_fold(self, vector: Any, multipliers: Any, data: Any) -> Any:
        return self.builder.xor(self.emit_shift(vector, multipliers), data)

    def emit_block(self, vector: Any, number: int) -> Any:
        """Emit code that extracts one block from a vector."""
        mask = ir.Constant(ir.VectorType(_INT, 2), [2 * number, 2 * number + 1])
        return self.builder.shuffle_vector(vector, vector, mask)

    def emit_combined_block(self, vector: Any) -> Any:
        """Emit code that folds all blocks of a vector into the last one."""
        last = self.emit_block(vector, self.blocks - 1)
        if self.blocks == 1:
            return last
        distances = [_fold_multipliers(BLOCK_SIZE * (self.blocks - 1 - number)) for number in range(self.blocks - 1)]
        moved = self.emit_shift(vector, self.emit_constant(*distances, (0, 0)))
        for number in range(self.blocks - 1):
            last = self.builder.xor(last, self.emit_block(moved, number))
        return last


class _InputCursor:
    """Position in the input, as variables of the emitted code."""

    def __init__(self, builder: Any, data: Any, start: Any, length: Any) -> None:
        self._builder = builder
        self._data = data
        self._end = builder.add(start, length)
        self._cursor = cgutils.alloca_once_value(builder, start)

    def emit_next_vector(self, folder: _CrcFolder) -> Any:
        """Emit code that reads the next vector of the input."""
        here = self._builder.load(self._cursor)
        self._builder.store(self._builder.add(here, ir.Constant(_WORD, folder.size)), self._cursor)
        return folder.emit_load(self._builder.gep(self._data, [here]))

    def emit_bytes_left(self) -> Any:
        """Emit code that computes the number of input bytes left."""
        return self._builder.sub(self._end, self._builder.load(self._cursor))

    def emit_has_bytes(self, size: int) -> Any:
        """Emit a condition that is true if at least `size` input bytes are left."""
        return self._builder.icmp_signed(">=", self.emit_bytes_left(), ir.Constant(_WORD, size))

    def emit_last_block(self, folder: _CrcFolder) -> Any:
        """Emit code that reads the last block of the input."""
        return folder.emit_load(
            self._builder.gep(self._data, [self._builder.sub(self._end, ir.Constant(_WORD, BLOCK_SIZE))])
        )


def _emit_while(builder: Any, condition: Callable[[], Any], body: Callable[[], None]) -> None:
    head, inside, after = (builder.append_basic_block(name) for name in ("fold.head", "fold.body", "fold.end"))
    builder.branch(head)
    builder.position_at_end(head)
    builder.cbranch(condition(), inside, after)
    builder.position_at_end(inside)
    body()
    builder.branch(head)
    builder.position_at_end(after)


def _emit_fold_lanes(builder: Any, cursor: _InputCursor, folder: _CrcFolder, first_vector: Any) -> Any:
    """Emit code that folds several independent vectors in parallel; `first_vector` is the first, read already."""
    lanes = [cgutils.alloca_once_value(builder, first_vector)]
    lanes += [cgutils.alloca_once_value(builder, cursor.emit_next_vector(folder)) for _ in range(_LANES - 1)]
    step = folder.emit_constant(_fold_multipliers(_LANES * folder.size))

    def emit_fold_of_all_lanes() -> None:
        for lane in lanes:
            builder.store(folder.emit_fold(builder.load(lane), step, cursor.emit_next_vector(folder)), lane)

    _emit_while(builder, lambda: cursor.emit_has_bytes(_LANES * folder.size), emit_fold_of_all_lanes)
    joined = builder.load(lanes[-1])
    for number, lane in enumerate(lanes[:-1]):
        distance = folder.emit_constant(_fold_multipliers((_LANES - 1 - number) * folder.size))
        joined = builder.xor(joined, folder.emit_shift(builder.load(lane), distance))
    return joined


def _emit_fold_vectors(builder: Any, cursor: _InputCursor, folder: _CrcFolder, crc_state: Any) -> Any:
    """Emit code that folds all whole vectors of the input, at least one, into one block."""
    vector = cgutils.alloca_once_value(builder, folder.emit_seeded_vector(cursor.emit_next_vector(folder), crc_state))
    # One vector is read. Three more fill the lanes, and a shorter rest than one step of all four is not worth the
    # joining.
    with builder.if_then(cursor.emit_has_bytes((2 * _LANES - 1) * folder.size)):
        builder.store(_emit_fold_lanes(builder, cursor, folder, builder.load(vector)), vector)
    step = folder.emit_constant(_fold_multipliers(folder.size))
    _emit_while(
        builder,
        lambda: cursor.emit_has_bytes(folder.size),
        lambda: builder.store(folder.emit_fold(builder.load(vector), step, cursor.emit_next_vector(folder)), vector),
    )
    return folder.emit_combined_block(builder.load(vector))


def _emit_fold_last_bytes(builder: Any, cursor: _InputCursor, folder: _CrcFolder, block: Any) -> None:
    """Emit code that folds the last input bytes, fewer than a block, into the variable `block`.

    With r bytes left, the block's first r bytes are folded onto a new block: the block's other bytes and those r bytes.
    """
    left = cursor.emit_bytes_left()
    # With no bytes left, a shift would be by 128 bits, whose result is undefined in LLVM.
    with builder.if_then(builder.icmp_signed(">", left, ir.Constant(_WORD, 0))):
        bits = builder.zext(builder.mul(left, ir.Constant(_WORD, 8)), _WIDE)
        opposite = builder.sub(ir.Constant(_WIDE, 8 * BLOCK_SIZE), bits)
        value = builder.bitcast(builder.load(block), _WIDE)
        last = builder.bitcast(cursor.emit_last_block(folder), _WIDE)
        fresh = builder.shl(builder.lshr(last, opposite), opposite)
        ahead = builder.bitcast(builder.shl(value, opposite), folder.vector)
        after = builder.bitcast(builder.or_(builder.lshr(value, bits), fresh), folder.vector)
        builder.store(folder.emit_fold(ahead, folder.emit_constant(_fold_multipliers(BLOCK_SIZE)), after), block)


def _emit_reduce_to_crc(builder: Any, folder: _CrcFolder, block: Any) -> Any:
    """Emit code that reduces 128 bits to the 32 bits of the CRC."""

    def shift_right(value: Any, bits: int) -> Any:
        return builder.bitcast(builder.lshr(builder.bitcast(value, _WIDE), ir.Constant(_WIDE, bits)), folder.vector)

    low_words = folder.emit_constant(_LOW_WORDS)
    value = builder.xor(
        folder.emit_multiply(block, folder.emit_constant(_fold_multipliers(BLOCK_SIZE)), 0x10), shift_right(block, 64)
    )
    folded = folder.emit_multiply(builder.and_(value, low_words), folder.emit_constant(_REDUCE_TO_64), 0x00)
    value = builder.xor(folded, shift_right(value, 32))
    barrett = folder.emit_constant(_BARRETT)
    quotient = builder.and_(folder.emit_multiply(builder.and_(value, low_words), barrett, 0x10), low_words)
    value = builder.xor(value, folder.emit_multiply(quotient, barrett, 0x00))
    low = builder.extract_element(value, ir.Constant(_INT, 0))
    return builder.lshr(low, ir.Constant(_WORD, 32))


def _make_fold_intrinsic(blocks_per_vector: int) -> Callable[..., Any]:
    def fold_crc_intrinsic(typing_context: Any, window: Any, position: Any, length: Any, state: Any) -> Any:
        def emit_crc_folding(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            _, start, length, state = arguments
            stretch = _InputCursor(builder, data, start, length)
            single = _CrcFolder(builder, 1)
            block = cgutils.alloca_once(builder, single.vector)
            if blocks_per_vector == 1:
                builder.store(_emit_fold_vectors(builder, stretch, single, state), block)
            else:
                several = _CrcFolder(builder, blocks_per_vector)
                with builder.if_else(stretch.emit_has_bytes(several.size)) as (long, short):
                    with long:
                        builder.store(_emit_fold_vectors(builder, stretch, several, state), block)
                    with short:
                        builder.store(single.emit_seeded_vector(stretch.emit_next_vector(single), state), block)
                step = single.emit_constant(_fold_multipliers(BLOCK_SIZE))
                _emit_while(
                    builder,
                    lambda: stretch.emit_has_bytes(BLOCK_SIZE),
                    lambda: builder.store(
                        single.emit_fold(builder.load(block), step, stretch.emit_next_vector(single)), block
                    ),
                )
            _emit_fold_last_bytes(builder, stretch, single, block)
            return _emit_reduce_to_crc(builder, single, builder.load(block))

        return types.uint64(window, types.int64, types.int64, types.uint64), emit_crc_folding

    return fold_crc_intrinsic


fold_crc_narrow = emitted(_make_fold_intrinsic(1))
"""Inverted CRC of at least one block, from the inverted CRC before it; needs PCLMULQDQ."""
fold_crc_wide = emitted(_make_fold_intrinsic(4))
"""Same, but also needs VPCLMULQDQ and AVX-512."""
