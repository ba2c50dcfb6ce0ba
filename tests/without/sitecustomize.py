"""As in an environment without pandas: looking for it fails.

(A module of that name that raises is found half imported by a second thread, and one that is None by pyarrow.)
"""

import sys


class NoPandas:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")


sys.meta_path.insert(0, NoPandas)  # type: ignore[arg-type]
