"""The one table of thresholds: sizes at which another implementation takes over.

It imports no torch. From the table the build generates C++'s ``Threshold``. Each size was measured;
``benchmarks/thresholds.py`` measures it again and writes docs/thresholds.md. What a library cannot
do, and how a kernel cuts its work into blocks, are not thresholds, and stand where they are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Threshold:
    """A row of the table.

    Attributes:
        name: C++'s enumerator.
        value: the size; C++ says on which side the size itself is.
        counts: what is counted, of which problems.
        smaller, larger: what computes problems on each side.
        needs: the instruction set that it is about, a name in ``INSTRUCTION_SETS``; empty where it
            is about none in particular.
    """

    name: str
    value: int
    counts: str
    smaller: str
    larger: str
    needs: str = ""


def _rows(
    smaller: str, larger: str, *sizes: tuple[str, int, str], needs: str = ""
) -> Iterator[Threshold]:
    for name, value, counts in sizes:
        yield Threshold(name, value, counts, smaller, larger, needs)


THRESHOLDS = {
    row.name: row
    for row in (
        *_rows(
            "torch",
            "ZenDNN",
            ("product", 1 << 13, "multiply-adds of a product of two matrices in float32"),
            ("product_elsewhere", 1 << 11, "multiply-adds of any other product without addend"),
            ("product_with_addend", 1 << 5, "multiply-adds of a product with an addend"),
            ("tiny_product", 1 << 7, "multiply-adds of each product of a batch"),
            ("weight_uses", 32, "uses of each weight of a convolution, where torch packs none"),
            ("convolution_work", 1 << 23, "multiply-adds of a convolution, where torch packs none"),
            ("bernoulli_numbers", 16, "numbers that a call draws"),
            ("gru_steps", 8, "steps of a GRU"),
        ),
        *_rows(
            "ZenDNN",
            "torch",
            ("gru_weights", 1 << 21, "weights of a layer of a GRU"),
            ("many_tiny_products", 256, "tiny products of a batch in a plan"),
            ("softmax_row", 32768, "numbers of a row of softmax in bfloat16"),
            ("softmax_column", 2048, "numbers of a column of softmax in bfloat16"),
        ),
        *_rows(
            "ZenDNN",
            "torch",
            ("product_result", 1 << 21, "numbers of a product's result in bfloat16"),
            ("product_rows", 2048, "rows of a product in bfloat16 whose depth is large and odd"),
            ("product_depth", 64, "the odd depth of a product of many rows in bfloat16"),
            ("attention_gradient_length", 512, "queries and keys of a gradient in bfloat16"),
            needs="amx",
        ),
        *_rows(
            "plain images",
            "blocks",
            ("plain_work", 1 << 23, "multiply-adds of a convolution of several images in float32"),
            ("plain_bf16_work", 1 << 25, "the same, in bfloat16"),
        ),
        *_rows(
            "a product",
            "blocks",
            ("pointwise_rows", 4096, "points, where the kernel has one and channels are last"),
        ),
        *_rows(
            "images one by one",
            "blocks",
            ("pointwise_batch_work", 1 << 21, "multiply-adds of a batch of plain images, kernel 1"),
            ("pointwise_weights", 1 << 22, "weights that the images of such a batch read in all"),
        ),
        *_rows(
            "blocks",
            "images one by one",
            ("pointwise_points", 8, "points of each image of a batch that reads few weights"),
            ("pointwise_image", 64, "points of each image of a batch that reads many weights"),
        ),
    )
}
