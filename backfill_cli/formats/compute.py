"""Arrow's functions for the top of a module that commands import before they read a row: loading them takes 30 ms.

`pc` is `pyarrow.compute`, loaded by the first use of a function.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:

    class _Functions:
        def __getattr__(self, name: str) -> Any:
            import pyarrow.compute

            function = getattr(pyarrow.compute, name)
            setattr(self, name, function)
            return function

    pc = _Functions()

__all__ = ["pc"]
