"""The order in which entries leave memory."""

from __future__ import annotations

from entries import entry

from trivet.exact.eviction import Node, S3Fifo

SIZE = entry().size


def nodes(order: S3Fifo, *names: str) -> list[Node]:
    made = [Node(entry(name)) for name in names]
    for node in made:
        order.add(node)
    return made


def leave(order: S3Fifo, count: int, total: int) -> list[bytes]:
    """The answers of the next nodes to leave, as their names."""
    return [order.victim(total).entry.body.split()[1] for _ in range(count)]


def test_what_nobody_asked_for_leaves_in_the_order_it_came() -> None:
    order = S3Fifo()
    nodes(order, "a", "b", "c")
    assert leave(order, 3, 3 * SIZE) == [b"a", b"b", b"c"]
    assert len(order) == 0


def test_what_was_asked_for_in_probation_moves_to_the_main_queue() -> None:
    order = S3Fifo()
    a, b, _ = nodes(order, "a", "b", "c")
    a.hit()
    assert leave(order, 1, 3 * SIZE) == [b"b"]
    assert (a.main, a.hits, b.main) == (True, 0, False)
    assert leave(order, 2, 2 * SIZE) == [b"c", b"a"]


def test_the_main_queue_spares_an_entry_as_often_as_it_was_asked_for() -> None:
    order = S3Fifo()
    a, b = nodes(order, "a", "b")
    for node in (a, b):
        node.hit()
    nodes(order, "c")
    assert leave(order, 1, 3 * SIZE) == [b"c"]
    a.hit()
    a.hit()
    assert leave(order, 1, 2 * SIZE) == [b"b"]
    assert a.hits == 1
    assert leave(order, 1, SIZE) == [b"a"]


def test_a_full_main_queue_gives_while_probation_is_small() -> None:
    order = S3Fifo()
    for node in nodes(order, *(f"m{number}" for number in range(20))):
        node.hit()
    (new,) = nodes(order, "new")
    assert leave(order, 3, 21 * SIZE) == [b"m0", b"m1", b"m2"]
    assert not new.main
    assert len(order) == 18


def test_a_name_that_left_probation_comes_back_into_the_main_queue() -> None:
    order = S3Fifo()
    nodes(order, "a", "b")
    assert leave(order, 1, 2 * SIZE) == [b"a"]
    (again,) = nodes(order, "a")
    assert again.main
    assert leave(order, 2, 2 * SIZE) == [b"b", b"a"]


def test_hits_are_counted_up_to_three() -> None:
    (node,) = nodes(S3Fifo(), "a")
    for _ in range(9):
        node.hit()
    assert node.hits == 3


def test_a_node_that_is_removed_never_leaves_again() -> None:
    order = S3Fifo()
    a, b, c = nodes(order, "a", "b", "c")
    b.hit()
    assert leave(order, 1, 3 * SIZE) == [b"a"]
    order.remove(c)
    assert leave(order, 1, SIZE) == [b"b"]
    assert a.main is False
    (d,) = nodes(order, "a")
    order.remove(d)
    assert len(order) == 0


def test_sizes_that_change_are_counted_in_probation_only() -> None:
    order = S3Fifo()
    a, b = nodes(order, "a", "b")
    a.main = False
    order.resize(a, 10)
    assert (a.size, order._probation_bytes) == (10, 10 + SIZE)
    b.hit()
    leave(order, 1, 10 + SIZE)
    assert order._probation_bytes == SIZE
    leave(order, 1, SIZE)
    (main,) = nodes(order, "a")
    order.resize(main, 99)
    assert (main.size, order._probation_bytes) == (99, 0)


def test_the_names_remembered_are_no_more_than_the_entries_held() -> None:
    order = S3Fifo()
    nodes(order, "keep1", "keep2")
    for number in range(50):
        nodes(order, f"n{number}")
        order.victim(3 * SIZE)
    assert len(order._ghosts) <= len(order) + 1
