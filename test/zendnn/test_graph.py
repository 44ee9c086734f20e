"""torch/backends/zendnn/ir: use lists, order, private values, and descriptions."""

from __future__ import annotations

import pytest
import torch
from torch.backends.zendnn.ir.graph import Graph, Region
from torch.backends.zendnn.ir.node import OPAQUE, Node, PostOp, Value
from torch.backends.zendnn.ir.text import describe


@pytest.fixture
def graph() -> Graph:
    return Graph()


def chain(graph: Graph, *ops: str) -> list[Node]:
    """A chain of operators from a new input; the last result escapes."""
    value, nodes = graph.input(), []
    for op in ops:
        nodes.append(graph.add(op, [value]))
        value = nodes[-1].output
    graph.set_outputs([value])
    return nodes


# Use lists.


def test_a_value_knows_its_producer_and_its_readers(graph: Graph) -> None:
    x = graph.input()
    one = graph.add("one", [x, 3, None])
    two = graph.add("two", [one.output, one.output, x])
    assert one.output.producer is one
    assert one.output.users == [two, two]
    assert x.users == [one, two]
    assert list(one.values()) == [x]
    graph.check()


def test_other_operands_change_the_use_lists(graph: Graph) -> None:
    x, y = graph.input(), graph.input()
    node = graph.add("binary", [x, x], attributes={"algorithm": "add"})
    graph.set_inputs(node, [y, x])
    assert (x.users, y.users) == ([node], [node])
    graph.check()


def test_all_uses_of_a_value_are_replaced(graph: Graph) -> None:
    x = graph.input()
    one = graph.add("one", [x])
    two = graph.add("two", [one.output, one.output])
    three = graph.add("three", [one.output, x])
    graph.replace_uses(one.output, x)
    assert one.output.users == []
    assert two.inputs == (x, x)
    assert three.inputs == (x, x)
    assert graph.remove_dead() == 3
    graph.check()


@pytest.mark.parametrize("reader", ["outside", OPAQUE])
def test_uses_that_others_read_are_not_replaced(graph: Graph, reader: str) -> None:
    (node,) = chain(graph, "one")
    x = graph.inputs[0]
    if reader == OPAQUE:
        graph.set_outputs([graph.add(OPAQUE, [node.output]).output])
        node.output.escapes = False
    with pytest.raises(AssertionError, match="is read outside the graph"):
        graph.replace_uses(node.output, x)


# Private values.


def test_a_value_is_private_when_passes_may_rewrite_all_its_readers(graph: Graph) -> None:
    one, two = chain(graph, "one", "two")
    assert graph.is_private(one.output)
    assert not graph.is_private(two.output), "it escapes"
    graph.add(OPAQUE, [one.output])
    assert not graph.is_private(one.output)


def test_the_only_user_reads_a_private_value_once(graph: Graph) -> None:
    one, two = chain(graph, "one", "two")
    assert graph.only_user(one.output) is two
    assert graph.only_user(two.output) is None
    graph.set_inputs(two, [one.output, one.output])
    assert graph.only_user(one.output) is None


# Order.


def test_a_node_is_inserted_and_moved_before_another(graph: Graph) -> None:
    one, two = chain(graph, "one", "two")
    three = graph.add("three", [graph.inputs[0]], before=two)
    assert graph.nodes == [one, three, two]
    graph.move_before(three, one)
    assert graph.nodes == [three, one, two]
    graph.check()


def test_a_node_takes_over_results_of_later_ones(graph: Graph) -> None:
    """As a fused operator does; its results keep their readers."""
    one, two = chain(graph, "one", "two")
    fused = graph.add("fused", one.inputs, before=one)
    graph.replace_uses(one.output, fused.output)
    graph.take_over(fused, two.output)
    graph.remove_dead()
    assert graph.nodes == [fused]
    assert graph.outputs == [fused.output]
    graph.check()


def test_a_node_with_more_results_is_not_taken_over(graph: Graph) -> None:
    x = graph.input()
    fused = graph.add("fused", [x])
    parts = graph.add("split", [x], outputs=[graph.value(), graph.value()])
    with pytest.raises(AssertionError, match="split makes more than that"):
        graph.take_over(fused, parts.outputs[0])


# Removal.


def test_only_unread_nodes_are_removed(graph: Graph) -> None:
    one, two = chain(graph, "one", "two")
    with pytest.raises(AssertionError, match=r"is still read$"):
        graph.remove(one)
    with pytest.raises(AssertionError, match="is still read outside"):
        graph.remove(two)
    spare = graph.add("spare", [one.output])
    graph.remove(spare)
    assert graph.nodes == [one, two]
    graph.check()


def test_dead_chains_go_and_opaque_nodes_stay(graph: Graph) -> None:
    one, two = chain(graph, "one", "two")
    dead = graph.add("dead", [one.output])
    graph.add("dead too", [dead.output])
    printing = graph.add(OPAQUE, [one.output], ordered=True)
    assert graph.remove_dead() == 2
    assert graph.nodes == [one, two, printing]
    graph.check()


# Broken graphs.


def test_a_check_finds_a_value_that_is_read_before_it_is_made(graph: Graph) -> None:
    one, two = chain(graph, "one", "two")
    graph.move_before(two, one)
    with pytest.raises(AssertionError, match="two reads %2 before it is made"):
        graph.check()


def test_a_check_finds_wrong_producers_and_users(graph: Graph) -> None:
    one, two = chain(graph, "one", "two")
    one.output.producer = two
    with pytest.raises(AssertionError, match="%2 does not know its producer"):
        graph.check()
    one.output.producer = one
    one.output.users.clear()
    with pytest.raises(AssertionError, match="%2 does not know its users"):
        graph.check()


# Attributes and text.


def test_an_attribute_that_is_not_set_has_its_default(graph: Graph) -> None:
    node = graph.add("mean", [graph.input()], attributes={"dims": (1,)})
    assert (node.get("dims"), node.get("keep"), node.get("scale")) == ((1,), False, None)
    assert graph.add(OPAQUE, []).get("dims") is None


def test_a_node_is_a_line_of_a_description(graph: Graph) -> None:
    x, n = graph.input(), graph.input("number")
    node = graph.add(
        "convolution",
        [x, None, 7, n, x],
        attributes={"stride": (2, 1), "groups": 1, "ceil": True, "eps": 1e-05, "mode": "sum"},
        post_ops=(PostOp("clip", 0.0, 6.0), PostOp("add", operand=4)),
    )
    assert str(node) == (
        "%3 = convolution(%1, none, 7, %2, %1) ceil=1 eps=1e-05 groups=1 mode=sum stride=2,1 "
        "post=clip:0.0:6.0;add@4"
    )
    assert str(graph) == str(node)


# Regions.


def test_a_region_reads_and_gives_what_crosses_its_border(graph: Graph) -> None:
    one, two, three = chain(graph, "one", "two", "three")
    region = Region.of([two], read=[two.output])
    assert (region.inputs, region.outputs) == ((one.output,), (two.output,))
    whole = Region.of(graph.nodes)
    assert (whole.inputs, whole.outputs) == (tuple(graph.inputs), (three.output,))


def test_a_region_is_described_with_its_constants_in_order(graph: Graph) -> None:
    x, n = graph.input(), graph.input("number")
    first, second = (graph.constant(torch.full((2,), float(i))) for i in range(2))
    one = graph.add("binary", [x, second], origin=("aten::add", "aten::relu"))
    two = graph.add("view", [graph.add("binary", [one.output, first]).output, n, second])
    graph.set_outputs([two.output])
    text, constants = describe(Region.of(graph.nodes))
    assert text == (
        "zendnn-plan 3\n"
        "%1 = input tensor\n"
        "%2 = input number\n"
        "%4 = constant 0\n"
        "%3 = constant 1\n"
        "%5 = binary(%1, %4) # aten::add+aten::relu\n"
        "%6 = binary(%5, %3)\n"
        "%7 = view(%6, %2, %4)\n"
        "return %7\n"
    )
    assert second.constant is not None
    assert first.constant is not None
    assert [x.tolist() for x in constants] == [[1.0, 1.0], [0.0, 0.0]]
    less, _ = describe(Region.of(graph.nodes), ["share_memory", "join_in_place"])
    assert less == text.replace("plan 3\n", "plan 3\nwithout join_in_place share_memory\n")
    timed, _ = describe(Region.of(graph.nodes), tune=0.5)
    assert timed == text.replace("plan 3\n", "plan 3\ntune 0.5\n")


def test_every_value_has_a_name_of_its_own(graph: Graph) -> None:
    values: list[Value] = [graph.input(), graph.value(), graph.constant(torch.ones(1))]
    values += graph.add("one", [values[0]]).outputs
    assert len({value.name for value in values}) == len(values)
