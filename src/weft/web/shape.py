"""The shape of a drawn fabric: its parts, and its diameter.

Each peer's reach is one large number with a bit for every peer, so a step of all breadth-first searches at once is a
few ORs a peer: the exact diameter of a thousand peers takes milliseconds.
"""

from collections.abc import Collection, Iterable

MEASURED_PEERS_MAX = 5_000
"""The diameter of more would hold up the server."""


def parts_of(peers: Iterable[int], links: Iterable[tuple[int, int]]) -> list[set[int]]:
    """Peers that can reach each other, largest part first."""
    neighbours: dict[int, list[int]] = {peer: [] for peer in peers}
    for a, b in links:
        neighbours[a].append(b)
        neighbours[b].append(a)
    parts: list[set[int]] = []
    seen: set[int] = set()
    for peer in neighbours:
        if peer in seen:
            continue
        part, todo = {peer}, [peer]
        while todo:
            for each in neighbours[todo.pop()]:
                if each not in part:
                    part.add(each)
                    todo.append(each)
        seen |= part
        parts.append(part)
    return sorted(parts, key=len, reverse=True)


def diameter_of(peers: Collection[int], links: Iterable[tuple[int, int]]) -> int | None:
    """The longest of the shortest ways. None for nobody, for a fabric in parts, and for too many peers."""
    count = len(peers)
    if not 0 < count <= MEASURED_PEERS_MAX:
        return None
    place = {peer: number for number, peer in enumerate(peers)}
    neighbours: list[list[int]] = [[] for _ in range(count)]
    for a, b in links:
        neighbours[place[a]].append(place[b])
        neighbours[place[b]].append(place[a])
    everyone = (1 << count) - 1
    reach = [1 << number for number in range(count)]
    steps = 0
    while any(each != everyone for each in reach):
        further = []
        for number, near in enumerate(neighbours):
            bits = reach[number]
            for each in near:
                bits |= reach[each]
            further.append(bits)
        if further == reach:
            return None
        reach = further
        steps += 1
    return steps
