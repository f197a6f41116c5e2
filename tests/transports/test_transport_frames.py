"""A frame stream: frames come out whole whatever surrounds and cuts them."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidewinder.agent.wire import FrameBuffer, encode_frame, send_frame
from sidewinder.transports.frames import NOISE_CAP_BYTES, BadFrame, FrameStream, encode

NONCE = "0123456789abcdef"
NOISE = st.binary(max_size=80).filter(lambda noise: b"@@" not in noise and not noise.endswith(b"@"))
MESSAGES = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=20), max_size=3)


def device_frame(message: dict[str, Any], blob: bytes) -> bytes:
    reader, writer = os.pipe()
    try:
        send_frame(writer, NONCE, message, blob)
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            return file.read()
    except OSError:
        os.close(reader)
        raise


@given(st.lists(st.tuples(NOISE, MESSAGES, st.binary(max_size=200)), max_size=4), st.data())
def test_frames_survive_noise_and_any_cut(
    parts: list[tuple[bytes, dict[str, Any], bytes]], data: st.DataObject
) -> None:
    stream = b"".join(noise + device_frame(message, blob) for noise, message, blob in parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    frames = FrameStream(NONCE)
    got = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += frames.feed(stream[start:end])
    assert got == [(message, blob) for _, message, blob in parts]
    assert bytes(frames.noise) == b"".join(noise for noise, _, _ in parts)


@given(MESSAGES, st.binary(max_size=300), st.integers(1, 50))
def test_the_device_reads_what_the_controller_writes(message: dict[str, Any], blob: bytes, step: int) -> None:
    data = encode(message, blob) * 2
    buffer = FrameBuffer()
    got = []
    for at in range(0, len(data), step):
        got += buffer.feed(data[at : at + step])
    assert got == [(message, blob)] * 2


def test_login_noise_that_is_not_text_is_kept_for_messages() -> None:
    frames = FrameStream(NONCE)
    assert frames.feed(b"Welcome \xff\xfe without newline@@" + device_frame({"op": "hello"}, b"")) == [
        ({"op": "hello"}, b"")
    ]
    assert bytes(frames.noise) == b"Welcome \xff\xfe without newline@@"


def test_endless_noise_does_not_fill_the_memory() -> None:
    frames = FrameStream(NONCE)
    for _ in range(100):
        frames.feed(b"x" * 10_000)
    assert len(frames.noise) == NOISE_CAP_BYTES
    assert len(frames._data) < 100


@pytest.mark.parametrize("rest", [b"12\n", b"x y\n", b"-1 0\n", b"9999999999 0\n", b"1" * 60, b"2 0\n{x\n"])
def test_a_broken_frame_is_an_error_not_a_guess(rest: bytes) -> None:
    with pytest.raises(BadFrame):
        FrameStream(NONCE).feed(b"@@" + NONCE.encode() + b" " + rest)


def test_the_device_refuses_what_is_no_header() -> None:
    assert encode_frame({}) == b"2 0\n{}"
    with pytest.raises(ValueError, match="not a frame header"):
        FrameBuffer().feed(b"x" * 64)
