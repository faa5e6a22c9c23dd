"""Which allocation an address belongs to: objects get a number when they are made and keep it when they are freed."""

from __future__ import annotations

from collections.abc import Hashable


class AddressMap:
    """Live memory objects by address; ``owner`` is whatever keeps addresses apart, such as a process."""

    def __init__(self) -> None:
        self._live: dict[tuple[Hashable, int], tuple[int, int | None]] = {}
        self._made = 0

    def allocate(self, owner: Hashable, address: int | None, size: int | None) -> int:
        """Return the number of a new object."""
        self._made += 1
        if address is not None:
            self._live[owner, address] = (self._made, size)
        return self._made

    def free(self, owner: Hashable, address: int | None) -> tuple[int | None, int | None]:
        """Return the number and size of the object at ``address``, which is gone now; None for what nobody made."""
        return self._live.pop((owner, address), (None, None)) if address is not None else (None, None)
