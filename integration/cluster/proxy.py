"""A network between a client and a server that tests can cut and make silent."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from enum import Enum

from integration.cluster.waiting import HOST, free_port

_PIECE = 65536
_RESET = struct.pack("ii", 1, 0)
_WITHIN_S = 30.0
_ACCEPTING = 5
"""Rounds of a loop in which a connection is accepted; asyncio leaves the socket of one
that is cancelled meanwhile to the garbage collector."""


class _Line(Enum):
    HEALTHY = "healthy"
    CUT = "cut"
    SILENT = "silent"


class Proxy:
    """Forwards a port of its own, the same for ever, to one of this machine.

    Attributes:
        port: Where clients connect.
        target: Where it forwards to.
        swallowed: Bytes that vanished so far, of both directions.
        resets: Connections that were reset or refused so far.
        victims: Clients' ports of the connections that the last fault has reset, or
            that lost bytes by it.
    """

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self.swallowed = 0
        self.resets = 0
        self.victims: set[int] = set()
        self.target = target
        self._line = _Line.HEALTHY
        self._pairs: set[_Pair] = set()
        self._closing: set[_Pair] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"proxy {self.port}", daemon=True
        )

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return f"{HOST}:{self.port}"

    @property
    def connections(self) -> int:
        """How many are open now, silent ones too."""
        return len(self._pairs)

    def start(self) -> None:
        """Take connections; the server need not be up."""
        self._thread.start()
        listening = asyncio.start_server(self._connected, HOST, self.port)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(
            _WITHIN_S
        )

    def stop(self) -> None:
        """End all connections. Harmless when repeated, or when it did not start."""
        if not self._thread.is_alive():
            return
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(_WITHIN_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_WITHIN_S)
        self._loop.close()

    def cut(self) -> None:
        """Reset every connection, and each new one, until ``heal``."""
        self.victims = set()
        self._line = _Line.CUT
        self._do(self._reset_all)

    def half_open(self) -> None:
        """Swallow what either side sends, until ``heal``; connections stay.

        New ones are accepted and as silent. What lost a byte stays silent after
        ``heal`` too, as behind a firewall that forgot the connection.
        """
        self.victims = set()
        self._line = _Line.SILENT
        self._do(lambda: None)

    def heal(self) -> None:
        """Let new connections through, and old ones that lost nothing."""
        self._line = _Line.HEALTHY
        self._do(lambda: None)

    # --- on the loop's thread

    async def _connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self._line is _Line.CUT:
            self.resets += 1
            _reset(writer)
            return
        pair = _Pair(writer)
        self._pairs.add(pair)
        try:
            await self._joined(pair, reader)
        except (OSError, asyncio.CancelledError):
            pass  # one of the two sides has gone, or the proxy ends
        finally:
            self._pairs.discard(pair)
            self._closing.add(pair)
            pair.close()

    async def _joined(self, pair: _Pair, reader: asyncio.StreamReader) -> None:
        if self._line is _Line.SILENT:
            await self._pump(pair, reader, None)
            return
        back, forth = await asyncio.open_connection(HOST, self.target)
        pair.server = forth
        pumps = {
            asyncio.ensure_future(self._pump(pair, reader, forth)),
            asyncio.ensure_future(self._pump(pair, back, pair.client)),
        }
        _, others = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in others:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(
        self,
        pair: _Pair,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter | None,
    ) -> None:
        while True:
            piece = await reader.read(_PIECE)
            pair.is_silent |= self._line is _Line.SILENT or writer is None
            if pair.is_silent:
                self.swallowed += len(piece)
                self.victims.add(pair.port)
                if not piece:  # the other side is not told
                    await pair.is_reset.wait()
                    return
            elif not piece or writer is None:
                return
            else:
                writer.write(piece)
                await writer.drain()

    def _reset_all(self) -> None:
        for pair in self._pairs:
            self.resets += 1
            self.victims.add(pair.port)
            pair.reset()

    async def _shut(self) -> None:
        self._server.close()
        for _ in range(_ACCEPTING):
            await asyncio.sleep(0)
        self._reset_all()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for pair in self._closing:
            pair.abort()
        await asyncio.sleep(0)  # what is aborted is closed by then

    def _do(self, call: Callable[[], None]) -> None:
        """Run it on the loop's thread and wait."""

        async def work() -> None:
            call()

        asyncio.run_coroutine_threadsafe(work(), self._loop).result(_WITHIN_S)


class _Pair:
    """A client's connection and the one made for it to the server."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.client = client
        self.server: asyncio.StreamWriter | None = None
        self.is_silent = False
        self.is_reset = asyncio.Event()
        self.port: int = (client.get_extra_info("peername") or (HOST, 0))[1]

    def reset(self) -> None:
        self.is_reset.set()
        _reset(self.client)
        if self.server is not None:
            _reset(self.server)

    def close(self) -> None:
        """Close both when they have taken what was written; perhaps they never do."""
        self.client.close()
        if self.server is not None:
            self.server.close()

    def abort(self) -> None:
        self.client.transport.abort()
        if self.server is not None:
            self.server.transport.abort()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close it with a reset instead of an end; what is closed already stays so."""
    if writer.transport.is_closing():
        return
    writer.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, _RESET
    )
    writer.transport.abort()
