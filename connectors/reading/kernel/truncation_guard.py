"""Signal handler for reads of truncated mapped files: supplies zeros and records it, so that no crash follows.

Access to a mapped page that the file no longer has raises SIGBUS. `on_bus_error` is the handler for it. In a region of
its table it maps a page of zeros there, counts the fault, and lets the kernel continue. Anywhere else it restores the
default handler, and the process ends as it would without this handler. It calls only mmap and signal, so it can run at
any point.

If called with signal number 0, it returns the address of its table. A row of the table is a region: first byte, end,
page size, and number of faults; a free row has the end 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from commitlake.connectors.reading.kernel.compile_options import compiled_callback, emitted

ROWS = 64
BEGIN, END, PAGE_SIZE, HITS = range(4)
"""Columns of the table, int64."""
ROW_SIZE = 4
TELL_TABLE = 0
"""Signal number that does not exist."""

_WORD = ir.IntType(64)
_ADDRESS_IN_INFO = 16  # siginfo_t.si_addr on 64-bit Linux
# PROT_READ, and MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS as on x86-64 and arm64: compiled code cannot read them from
# `mmap`.
_READ, _PRIVATE_FIXED_ANONYMOUS = 1, 0x02 | 0x10 | 0x20
_DEFAULT = 0

_mmap: Any = types.ExternalFunction(
    "mmap", types.intp(types.intp, types.intp, types.int32, types.int32, types.int32, types.int64)
)
_signal: Any = types.ExternalFunction("signal", types.intp(types.int32, types.intp))


@emitted
def _region_table_address(typing_context):
    """Return the address of the table of mapped regions that are guarded against truncation of their files."""

    def emit_table_address(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.ArrayType(_WORD, ROWS * ROW_SIZE)
        table = cgutils.add_global_variable(builder.module, kind, "commitlake_mapped_regions")
        table.linkage = "internal"
        table.initializer = ir.Constant(kind, None)
        return builder.ptrtoint(table, _WORD)

    return types.int64(), emit_table_address


@emitted
def _load_word(typing_context, address):
    def emit_word_load(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], _WORD.as_pointer()))

    return types.int64(types.int64), emit_word_load


@emitted
def _store_word(typing_context, address, value):
    def emit_word_store(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[1], builder.inttoptr(arguments[0], _WORD.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit_word_store


def _handle_bus_error(signal_number, signal_info, context):
    table = _region_table_address()
    if signal_number == TELL_TABLE:
        return table
    address = _load_word(signal_info + _ADDRESS_IN_INFO)
    for row in range(ROWS):
        entry = table + 8 * ROW_SIZE * row
        if _load_word(entry + 8 * BEGIN) <= address < _load_word(entry + 8 * END):
            size = _load_word(entry + 8 * PAGE_SIZE)
            page = address & ~(size - 1)
            # MAP_FIXED replaces the missing page in one step, so the interrupted instruction finds zeros when it is
            # repeated.
            if _mmap(page, size, np.int32(_READ), np.int32(_PRIVATE_FIXED_ANONYMOUS), np.int32(-1), 0) == page:
                _store_word(entry + 8 * HITS, _load_word(entry + 8 * HITS) + 1)
                return 0
    # After the return the interrupted instruction is executed again, and now ends the process.
    _signal(signal_number, _DEFAULT)
    return 0


on_bus_error: Any = compiled_callback(types.int64(types.int32, types.int64, types.int64))(_handle_bus_error)
"""Signal handler, see the module."""
