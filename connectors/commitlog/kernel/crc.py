"""CRC-32 (IEEE, reflected: zlib's) of a stretch of the window.

On x86 with carry-less multiply the stretch is folded 64 bytes a step, as V. Gopal et al. describe it ("Fast CRC
Computation for Generic Polynomials Using PCLMULQDQ Instruction", 2009), then 16 bytes a step, then reduced by
Barrett; what is left, and everything on other processors, goes through tables eight bytes a step. The choice is made
once, at import.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from connectors.commitlog.kernel.memory import load_le_u64

_POLYNOMIAL = 0xEDB88320
_FOLD_512 = (0x0154442BD4, 0x01C6E41596)
_FOLD_128 = (0x01751997D0, 0x00CCAA009E)
_FOLD_64 = (0x0163CD6124, 0)
_BARRETT = (0x01DB710641, 0x01F7011641)
_LOW_WORDS = (0xFFFFFFFF, 0xFFFFFFFF)
_FOLD_SIZE = 16

HAS_CARRY_LESS_MULTIPLY = bool(llvm.get_host_cpu_features().get("pclmul", False))


def _make_tables() -> np.ndarray[Any, np.dtype[np.uint32]]:
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        tables[0, byte] = value
    for table in range(1, 8):
        previous = tables[table - 1]
        tables[table] = (previous >> 8) ^ tables[0][previous & 0xFF]
    return tables


_TABLES = _make_tables()


@njit(nogil=True, cache=True)
def _crc_by_table(window, position, length, state):
    """Go on from `state` (inverted CRC) over a stretch, eight bytes a step."""
    crc = np.uint64(state)
    end = position + length
    while end - position >= 8:
        word = load_le_u64(window, position) ^ crc
        crc = np.uint64(
            _TABLES[7, word & np.uint64(0xFF)]
            ^ _TABLES[6, (word >> np.uint64(8)) & np.uint64(0xFF)]
            ^ _TABLES[5, (word >> np.uint64(16)) & np.uint64(0xFF)]
            ^ _TABLES[4, (word >> np.uint64(24)) & np.uint64(0xFF)]
            ^ _TABLES[3, (word >> np.uint64(32)) & np.uint64(0xFF)]
            ^ _TABLES[2, (word >> np.uint64(40)) & np.uint64(0xFF)]
            ^ _TABLES[1, (word >> np.uint64(48)) & np.uint64(0xFF)]
            ^ _TABLES[0, word >> np.uint64(56)]
        )
        position += 8
    while position < end:
        crc = np.uint64(_TABLES[0, (crc ^ np.uint64(window[position])) & np.uint64(0xFF)]) ^ (crc >> np.uint64(8))
        position += 1
    return crc


class _Folder:
    """Emits the folding as LLVM vector code; an accumulator is a 128-bit variable."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        self.vector = ir.VectorType(ir.IntType(64), 2)
        byte = ir.IntType(8)
        signature = ir.FunctionType(self.vector, [self.vector, self.vector, byte])
        self._multiply = cgutils.get_or_insert_function(builder.module, signature, "llvm.x86.pclmulqdq")
        self._selectors = {selector: ir.Constant(byte, selector) for selector in (0x00, 0x10, 0x11)}

    def constant(self, pair: tuple[int, int]) -> Any:
        return ir.Constant(self.vector, [ir.Constant(ir.IntType(64), word) for word in pair])

    def multiply(self, left: Any, right: Any, selector: int) -> Any:
        return self.builder.call(self._multiply, [left, right, self._selectors[selector]])

    def load(self, address: Any) -> Any:
        return self.builder.load(self.builder.bitcast(address, self.vector.as_pointer()), align=1)

    def fold(self, accumulator: Any, constants: Any, data: Any) -> Any:
        low = self.multiply(accumulator, constants, 0x00)
        high = self.multiply(accumulator, constants, 0x11)
        return self.builder.xor(self.builder.xor(low, high), data)

    def shift_right(self, value: Any, bits: int) -> Any:
        wide = ir.IntType(128)
        shifted = self.builder.lshr(self.builder.bitcast(value, wide), ir.Constant(wide, bits))
        return self.builder.bitcast(shifted, self.vector)

    def reduce(self, accumulator: Any) -> Any:
        """128 bits to the 32 of the CRC."""
        builder, low_words = self.builder, self.constant(_LOW_WORDS)
        value = builder.xor(
            self.multiply(accumulator, self.constant(_FOLD_128), 0x10), self.shift_right(accumulator, 64)
        )
        folded = self.multiply(builder.and_(value, low_words), self.constant(_FOLD_64), 0x00)
        value = builder.xor(folded, self.shift_right(value, 32))
        barrett = self.constant(_BARRETT)
        quotient = builder.and_(self.multiply(builder.and_(value, low_words), barrett, 0x10), low_words)
        value = builder.xor(value, self.multiply(quotient, barrett, 0x00))
        low = builder.extract_element(value, ir.Constant(ir.IntType(32), 0))
        return builder.lshr(low, ir.Constant(ir.IntType(64), 32))


@intrinsic
def _crc_by_folding(typing_context, window, position, wide_steps, steps, state):
    """The inverted CRC over 64 * wide_steps + 16 * steps bytes; at least one of the two is above 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        _, start, wide_steps, steps, state = arguments
        folder = _Folder(builder)
        word = ir.IntType(64)

        def address(offset: Any) -> Any:
            return builder.gep(data, [offset])

        def plus(offset: Any, size: int) -> Any:
            return builder.add(offset, ir.Constant(word, size))

        cursor = cgutils.alloca_once_value(builder, start)
        first = cgutils.alloca_once_value(builder, folder.constant((0, 0)))
        left = cgutils.alloca_once_value(builder, steps)
        seed = builder.insert_element(folder.constant((0, 0)), state, ir.Constant(ir.IntType(32), 0))
        has_wide = builder.icmp_signed(">", wide_steps, ir.Constant(word, 0))
        with builder.if_else(has_wide) as (wide, narrow):
            with wide:
                lanes = [
                    cgutils.alloca_once_value(builder, folder.load(address(plus(start, 16 * lane))))
                    for lane in range(4)
                ]
                builder.store(builder.xor(builder.load(lanes[0]), seed), lanes[0])
                builder.store(plus(start, 64), cursor)
                with cgutils.for_range(builder, builder.sub(wide_steps, ir.Constant(word, 1))):
                    here = builder.load(cursor)
                    for lane, variable in enumerate(lanes):
                        block = folder.load(address(plus(here, 16 * lane)))
                        builder.store(folder.fold(builder.load(variable), folder.constant(_FOLD_512), block), variable)
                    builder.store(plus(here, 64), cursor)
                joined = builder.load(lanes[0])
                for variable in lanes[1:]:
                    joined = folder.fold(joined, folder.constant(_FOLD_128), builder.load(variable))
                builder.store(joined, first)
            with narrow:
                builder.store(builder.xor(folder.load(address(start)), seed), first)
                builder.store(plus(start, 16), cursor)
                builder.store(builder.sub(steps, ir.Constant(word, 1)), left)
        with cgutils.for_range(builder, builder.load(left)):
            here = builder.load(cursor)
            block = folder.load(address(here))
            builder.store(folder.fold(builder.load(first), folder.constant(_FOLD_128), block), first)
            builder.store(plus(here, 16), cursor)
        return folder.reduce(builder.load(first))

    return types.uint64(window, types.int64, types.int64, types.int64, types.uint64), generate


@njit(nogil=True, cache=True)
def _crc_folded(window, position, length, state):
    crc = np.uint64(state)
    folded = (length // _FOLD_SIZE) * _FOLD_SIZE
    if folded > 0:
        crc = _crc_by_folding(window, position, folded // 64, folded % 64 // _FOLD_SIZE, crc)  # type: ignore[call-arg]
    return _crc_by_table(window, position + folded, length - folded, crc)


_crc = _crc_folded if HAS_CARRY_LESS_MULTIPLY else _crc_by_table


@njit(nogil=True, cache=True)
def crc32(window, position, length):
    """Zlib's CRC-32 of `length` bytes from `position`, as an unsigned 64-bit integer."""
    return _crc(window, position, length, np.uint64(0xFFFFFFFF)) ^ np.uint64(0xFFFFFFFF)
