"""What is a root after a rank's first divergent step: numbers from Python that differ there first."""

from dataclasses import replace

import pytest

from detlab import compare
from detlab.schema import Flag, Phase
from detlab.testing import Call, make_run
from tests.comparison.stories import ADAMW, INDEX_ADD, MUL, expect, item

KERNEL = ("kernel", INDEX_ADD, (0,))


def scaled(number, end, step=2, scope="clip"):
    """A gradient that carries a difference, multiplied by a number from Python."""
    given = "h" if step == 1 else f"g{step}"
    return Call(
        MUL, scope, [given + end], [f"c{step}{end}"], scalars=[number], step=step, flags=Flag.HOST_SCALAR
    )


def origin(end):
    return Call(INDEX_ADD, "moe", ["x"], [f"h{end}"])


def test_a_number_that_first_differs_in_a_later_step_is_a_root():
    runs = [
        [origin(end), scaled(0.5, end, 1), scaled(number, end)] for end, number in (("", 0.5), ("!", 0.25))
    ]
    cmp = expect(*runs, "origin receiver receiver", KERNEL, ("upstream", MUL, (0,)))
    assert cmp.roots[1].steps == (2,)


@pytest.mark.parametrize("in_step", [1, 2])
def test_a_number_after_a_host_read_that_differs_is_explained_by_it(in_step):
    def run(end, number):
        return [origin(end), replace(item(f"h{end}", number), step=in_step), scaled(number, end)]

    expect(run("", 0.5), run("!", 0.25), "origin receiver receiver", KERNEL)


def test_a_host_read_after_the_number_explains_nothing():
    def run(end, number):
        return [origin(end), scaled(number, end), replace(item(f"n{end}", number), step=2)]

    expect(run("", 0.5), run("!", 0.25), "origin receiver receiver", KERNEL, ("upstream", MUL, (0,)))


def test_a_number_that_differed_before_is_no_root_again():
    def run(end, number):
        return [origin(end), scaled(number, end, 1), scaled(number, end, 2), scaled(number, end, 3)]

    cmp = expect(
        run("", 0.5), run("!", 0.25), "origin receiver receiver receiver", KERNEL, ("upstream", MUL, (0,))
    )  # fmt: skip
    assert cmp.roots[1].steps == (1,)


def test_equal_numbers_of_a_later_step_are_no_root():
    runs = [[origin(end), scaled(0.5, end), scaled(0.5, end, 3)] for end in ("", "!")]
    expect(*runs, "origin receiver receiver", KERNEL)


def test_a_number_of_another_place_is_a_root_of_its_own():
    def run(end, lr):
        decayed = Call(
            ADAMW, "opt", [f"g2{end}"], [f"p2{end}"], scalars=[lr], step=2, phase=Phase.OPTIMIZER,
            flags=Flag.HOST_SCALAR,
        )  # fmt: skip
        return [origin(end), scaled(lr, end, 1), scaled(lr, end, 2), decayed]

    cmp = compare(make_run({0: run("", 0.5)}), make_run({0: run("!", 0.25)}))
    assert sorted((each.op, each.steps) for each in cmp.roots) == sorted(
        [(INDEX_ADD, (1,)), (MUL, (1,)), (ADAMW, (2,))]
    )
