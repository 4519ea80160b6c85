"""Tokens that the builder finds by itself."""
from __future__ import annotations

from byoc_accel.emit.builder import Access, Builder

STAGE, OTHER = Access("sram", 0, 64), Access("sram", 64, 128)


def test_first_instruction_after_a_barrier_is_waited_for() -> None:
    builder = Builder()
    builder.barrier()
    builder.add("load", "dma_in", (Access(0, 0, 64),), (STAGE,), binding=0, row_bytes=64)
    builder.add("post", "post", (STAGE,), (OTHER,), source_sram=1)
    *_, load, post = builder.finish()
    assert load.fields["signal"] == ("post",) and post.fields["wait"] == ("dma_in",)


def test_what_a_barrier_covers_needs_no_token() -> None:
    builder = Builder()
    builder.add("load", "dma_in", (Access(0, 0, 64),), (STAGE,), binding=0, row_bytes=64)
    builder.barrier()
    builder.add("post", "post", (STAGE,), (OTHER,), source_sram=1)
    assert builder.finish()[-1].fields["wait"] == ()
