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

    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(200):
            kept = Stream()
            Ending()
            held.add(kept)
            assert list(held) == [kept]
            Ending()
            held.discard(kept)
            assert not list(held)
    finally:
        gc.set_threshold(*before)


def test_a_stream_that_is_opened_in_the_midst_of_opening_another_is_not_lost() -> None:
    held, opened = OpenStreams[Stream](), list[Stream]()

    class Opening:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            opened.append(Stream())
            held.add(opened[-1])

    before = gc.get_threshold()
    try:
        for number in range(200):
            gc.set_threshold(0)
            Opening()
            another = Stream()
            opened.append(another)
            gc.set_threshold(1 + number % 5)
            held.add(another)
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert len(opened) == 400
    assert set(held) == set(opened)
