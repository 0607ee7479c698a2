"""List scheduling reduces register pressure, keeps operands before users, and does not move checks."""

from livegrad import ops
from livegrad.codegen.llvm.list_scheduling import schedule_for_latency, schedule_for_pressure, schedule_instructions
from livegrad.ir.function import trace
from livegrad.ir.node import Function, Node
from livegrad.ir.types import f32, i32
from livegrad.ir.walk import nodes_of


def most_alive(order: list[Node], results: tuple[Node, ...]) -> int:
    """The largest number of computed values that are live at once."""
    last = {operand: place for place, node in enumerate(order) for operand in node.operands}
    last |= dict.fromkeys(results, len(order))
    alive, most = set(), 0
    for place, node in enumerate(order):
        if node.operands:
            alive.add(node)
        most = max(most, len(alive))
        alive = {value for value in alive if last[value] > place}
    return most


def many_sums(terms: int) -> Function:
    """Two sums over the same terms; a depth-first walk would compute one sum after the other."""

    def sums(*xs: Node) -> tuple[Node, Node]:
        squares = [x * x for x in xs]
        first, second = ops.zero(f32), ops.zero(f32)
        for square in squares:
            first, second = first + square * 2.0, second + square * 3.0
        return first, second

    return trace(sums, *[f32] * terms)


def test_values_that_two_results_share_are_not_kept_live():
    function = many_sums(60)
    walk = list(nodes_of(function))
    order = list(schedule_for_pressure(walk))
    assert sorted(map(id, order)) == sorted(map(id, walk))
    assert most_alive(walk, function.results) > 60
    assert most_alive(order, function.results) < 8


def test_operands_come_first():
    order = list(schedule_for_pressure(nodes_of(many_sums(60))))
    place = {node: number for number, node in enumerate(order)}
    assert all(place[operand] < place[node] for node in order for operand in node.operands)


def test_code_with_checks_is_not_reordered():
    def divided(*xs: Node) -> Node:
        total = xs[0]
        for x in xs[1:]:
            total = total // x + total
        return total

    walk = nodes_of(trace(divided, *[i32] * 80))
    assert schedule_for_pressure(walk) is walk


def lengths_in_a_row(x: Node, y: Node) -> Node:
    """Independent square roots, and a chain that uses them one by one."""
    total = x
    for number in range(12):
        offset = x - 0.1 * number
        total = ops.min(total * 0.5, ops.sqrt(offset * offset + y * y))
    return total


def test_other_nodes_are_scheduled_between_a_root_and_its_use():
    function = trace(lengths_in_a_row, f32, f32)

    def shortest_wait(order: list[Node]) -> int:
        """Operations from a root to its user, at least, but for the last roots, after which nothing else is left."""
        work = [node for node in order if node.operands]
        waits = [work.index(n) - work.index(o) for n in work for o in n.operands if o.op is ops.sqrt]
        return min(waits[:-4])

    walk = list(nodes_of(function))
    order = schedule_for_latency(walk, 6)
    place = {node: number for number, node in enumerate(order)}
    assert sorted(map(id, order)) == sorted(map(id, walk))
    assert all(place[operand] < place[node] for node in order for operand in node.operands)
    assert shortest_wait(walk) == 1
    assert shortest_wait(order) > 4
    assert most_alive(order, function.results) < 10 < most_alive(schedule_for_latency(walk, 100), function.results)


def smooth_gradient(x: Node, y: Node) -> tuple[Node, ...]:
    """The gradient of a chain of selects: most values are used soon, and again much later."""
    total, steps = x, []
    for number in range(60):
        offset = x - 0.1 * number
        distance = ops.sqrt(offset * offset + y * y)
        steps.append((total, distance, offset))
        total = ops.min(total * 0.5, distance)
    by_total, by_x = ops.filled(1.0, f32), ops.zero(f32)
    for before, distance, offset in reversed(steps):
        second = ops.less(distance, before * 0.5)
        by_x = by_x + ops.select(second, by_total, ops.zero(f32)) * offset / distance
        by_total = ops.select(second, ops.zero(f32), by_total) * 0.5
    return total, by_x


def test_comparisons_of_a_gradient_come_right_before_their_use():
    walk = list(nodes_of(trace(smooth_gradient, f32, f32)))
    order = list(schedule_instructions(walk, 32, 64))
    place = {node: number for number, node in enumerate(order)}
    assert len(walk) >= 600
    assert sorted(map(id, order)) == sorted(map(id, walk))
    assert order == schedule_for_latency(walk, 8)
    assert all(place[operand] < place[node] for node in order for operand in node.operands)
    for comparison in (node for node in order if node.op is ops.less):
        assert place[comparison] + 1 == min(place[node] for node in order if comparison in node.operands)


def test_values_for_the_backward_pass_do_not_count_as_live():
    """If the values of the forward chain counted as live, each root would be used right after it is computed."""
    order = schedule_for_latency(list(nodes_of(trace(smooth_gradient, f32, f32))), 8)
    work = [node for node in order if node.operands]
    place = {node: number for number, node in enumerate(work)}
    waits = [place[node] - place[operand] for node in work if node.op is ops.min for operand in node.operands[1:]]
    assert sorted(waits)[len(waits) // 4] > 8


def test_short_code_and_baseline_code_minimise_register_pressure():
    long, short = (list(nodes_of(trace(smooth_gradient, f32, f32)))), list(nodes_of(many_sums(60)))
    assert schedule_instructions(long, 32, 0) == schedule_for_pressure(long)
    assert schedule_instructions(short, 32, 64) == schedule_for_pressure(short)
