"""A lock on an open file. It ends with the process, however that ends."""

import sys
from typing import BinaryIO

if sys.platform != "win32":
    import fcntl

    def lock(file: BinaryIO) -> bool:
        """Returns False if another process has the lock."""
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

else:

    def lock(file: BinaryIO) -> bool:
        """Not needed: Windows does not remove open files."""
        return True
