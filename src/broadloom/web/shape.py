"""The shape of a drawn fabric: its parts, and its diameter.

Each peer's reach is one large number with a bit for every peer, so a step of all breadth-first searches at once is a
few ORs a peer: the exact diameter of a thousand peers takes milliseconds.
"""

from collections.abc import Collection, Iterable

DIAMETER_PEERS_MAX = 5_000
"""The diameter of more would hold up the server."""


def find_components(peers: Iterable[int], links: Iterable[tuple[int, int]]) -> list[set[int]]:
    """Peers that can reach each other, largest part first."""
    neighbors: dict[int, list[int]] = {peer: [] for peer in peers}
    for a, b in links:
        neighbors[a].append(b)
        neighbors[b].append(a)
    components: list[set[int]] = []
    seen: set[int] = set()
    for peer in neighbors:
        if peer in seen:
            continue
        component, todo = {peer}, [peer]
        while todo:
            for each in neighbors[todo.pop()]:
                if each not in component:
                    component.add(each)
                    todo.append(each)
        seen |= component
        components.append(component)
    return sorted(components, key=len, reverse=True)


def exact_diameter(peers: Collection[int], links: Iterable[tuple[int, int]]) -> int | None:
    """The longest of the shortest ways. None for nobody, for a fabric in parts, and for too many peers."""
    count = len(peers)
    if not 0 < count <= DIAMETER_PEERS_MAX:
        return None
    place = {peer: number for number, peer in enumerate(peers)}
    neighbors: list[list[int]] = [[] for _ in range(count)]
    for a, b in links:
        neighbors[place[a]].append(place[b])
        neighbors[place[b]].append(place[a])
    all_peers = (1 << count) - 1
    reach = [1 << number for number in range(count)]
    steps = 0
    while any(each != all_peers for each in reach):
        further = []
        for number, near in enumerate(neighbors):
            bits = reach[number]
            for each in near:
                bits |= reach[each]
            further.append(bits)
        if further == reach:
            return None
        reach = further
        steps += 1
    return steps
