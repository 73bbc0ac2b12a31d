"""A damaged stream gives what came before the damage, or an error; never other bytes."""

import itertools

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from equipoise.adapters.prometheus.remote_read.frames import DamagedFrame, Frames, FrameTooLarge
from tests.support.prometheus.encoding import frame, uvarint

MESSAGES = st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=6)


def read(
    stream: bytes, cuts: list[int] | None = None, **options: int
) -> tuple[list[bytes], Exception | None]:
    """Feed a stream in parts; give what came out, and what ended it."""
    frames = Frames(**options)
    found: list[bytes] = []
    places = sorted({0, *(cut for cut in cuts or [] if cut < len(stream)), len(stream)})
    try:
        for first, end in itertools.pairwise(places):
            found.extend(frames.feed(stream[first:end]))
        frames.close()
    except (DamagedFrame, FrameTooLarge) as error:
        return found, error
    return found, None


@given(MESSAGES, st.lists(st.integers(0, 2000), max_size=20))
def test_a_stream_may_be_cut_into_any_parts(messages: list[bytes], cuts: list[int]) -> None:
    """The parts in which bytes arrive say nothing about frames."""
    assert read(b"".join(map(frame, messages)), cuts) == (messages, None)


@settings(max_examples=400, deadline=None)
@given(MESSAGES, st.data())
def test_damage_gives_an_error_and_the_exact_frames_before_it(
    messages: list[bytes], data: st.DataObject
) -> None:
    """Bits flipped, bytes lost, doubled or put in; the frames before are whole, and none is wrong."""
    written = [frame(message) for message in messages]
    stream = b"".join(written)
    borders = {0, *itertools.accumulate(map(len, written))}
    at = data.draw(st.integers(0, len(stream) - 1))
    size = data.draw(st.integers(1, 40))
    kind = data.draw(st.sampled_from(["flip", "lose", "double", "insert", "text"]))
    if kind == "flip":
        damaged = bytearray(stream)
        damaged[at] ^= data.draw(st.integers(1, 255))
    elif kind == "lose":
        # A whole frame that vanished without a trace is for TCP to prevent.
        assume(not (at in borders and at + size in borders) and at + size < len(stream))
        damaged = bytearray(stream[:at] + stream[at + size :])
    elif kind == "double":
        assume(not (at in borders and min(at + size, len(stream)) in borders))
        damaged = bytearray(stream[: at + size] + stream[at:])
    elif kind == "insert":
        damaged = bytearray(stream[:at] + data.draw(st.binary(min_size=1, max_size=40)) + stream[at:])
    else:
        damaged = bytearray(stream[:at] + b"remote read: block was closed\n")
    assume(bytes(damaged) != stream)
    found, error = read(bytes(damaged), data.draw(st.lists(st.integers(0, 2000), max_size=3)))
    whole = sum(border <= at for border in borders) - 1
    assert found[:whole] == messages[:whole]
    if found != messages[: len(found)]:
        # What was put in or doubled happened to be a frame with its checksum: it was not damaged.
        assert kind in {"insert", "double"}
        assert all(frame(message) in bytes(damaged) for message in found)
    assert error is not None or found == messages[: len(found)] or kind in {"insert", "double"}


@given(MESSAGES, st.data())
def test_a_stream_that_ends_early_is_told_from_one_that_ends(
    messages: list[bytes], data: st.DataObject
) -> None:
    """Unless it ends between two frames, which HTTP must tell."""
    written = [frame(message) for message in messages]
    stream = b"".join(written)
    borders = [0, *itertools.accumulate(map(len, written))]
    at = data.draw(st.integers(0, len(stream)))
    found, error = read(stream[:at])
    assert found == messages[: sum(border <= at for border in borders) - 1]
    assert (error is None) == (at in borders)


@pytest.mark.parametrize("text", ["sample limit exceeded\n", "x" * 300, "expanding series: chunk 7 is gone"])
def test_an_error_that_comes_as_text_after_good_frames_is_told(text: str) -> None:
    """Its status was sent long before, so it is all that the server can do."""
    found, error = read(frame(b"good") + text.encode())
    assert found == [b"good"]
    assert isinstance(error, DamagedFrame)
    assert str(error).startswith(f"the server aborted: {text[:20]}".strip())


def test_a_frame_beyond_the_limit_is_refused_before_it_is_held() -> None:
    """Its size alone decides."""
    found, error = read(frame(b"good") + uvarint(1 << 40) + b"\x00\x01\x02\x03", frame_max_bytes=1000)
    assert found == [b"good"]
    assert isinstance(error, FrameTooLarge)
    assert read(frame(bytes(1000)), frame_max_bytes=1000) == ([bytes(1000)], None)


def test_a_size_that_does_not_end_is_refused() -> None:
    """Ten bytes are the most that a number has."""
    assert isinstance(read(b"\xff" * 11)[1], DamagedFrame)
