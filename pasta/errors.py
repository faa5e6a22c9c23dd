"""The one exception that users see: a message and what to do about it, never a traceback."""

from __future__ import annotations


class PastaError(Exception):
    """A mistake in the input or the environment.

    ``message`` says what is wrong, ``fix`` what to do about it, ``exit_code`` is the process's exit status
    (2: bad input; 125: pasta itself failed in ``record``; 126: not executable; 127: not found).
    """

    def __init__(self, message: str, fix: str = "", exit_code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.message}; {self.fix}" if self.fix else self.message
