"""The streams that a device keeps order with."""

from __future__ import annotations

import gc
import threading

from quernel.runtime.open_streams import OpenStreams


class Stream:
    pass


def test_streams_come_in_the_order_of_their_opening_until_they_are_discarded() -> None:
    held, first, second = OpenStreams[Stream](), Stream(), Stream()
    held.add(first)
    held.add(second)
    assert list(held) == [first, second]
    held.discard(first)
    assert list(held) == [second]
    held.clear()
    assert not held


def test_a_stream_that_nobody_holds_is_gone() -> None:
    held, kept = OpenStreams[Stream](), Stream()
    held.add(Stream())
    held.add(kept)
    gc.collect()
    assert list(held) == [kept]


def test_threads_may_open_streams_while_others_go_through_them() -> None:
    held, failures, is_done = OpenStreams[Stream](), list[BaseException](), threading.Event()

    def go_through() -> None:
        try:
            while not is_done.is_set():
                for _ in held:
                    pass
        except BaseException as error:  # whatever it is, the test shall say so
            failures.append(error)

    readers = [threading.Thread(target=go_through) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(300):
        streams = [Stream() for _ in range(8)]
        for stream in streams:
            held.add(stream)
        for stream in streams[::2]:
            held.discard(stream)
    is_done.set()
    for reader in readers:
        reader.join()
    assert not failures


def test_the_collector_may_end_a_stream_in_the_midst_of_any_method() -> None:
    held = OpenStreams[Stream]()

    class Ending(Stream):
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            held.discard(self)

    def collect() -> None:
        held.add(Ending())
        with held._lock:
            gc.collect()

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert list(held) == []
