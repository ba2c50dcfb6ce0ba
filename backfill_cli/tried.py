"""The versions that the tests of this release ran with. Written by scripts/lock."""

TRIED = {
    "adbc-driver-manager": ("1.13.0", "1.13.0"),
    "adbc-driver-postgresql": ("1.13.0", "1.13.0"),
    "confluent-kafka": ("2.11.0", "2.16.1"),
    "deltalake": ("1.6.1", "1.6.6"),
    "duckdb": ("2.0.0", "2.0.1"),
    "filelock": ("4.2.0", "4.3.1"),
    "googleapis-common-protos": ("1.71.0", "1.76.0"),
    "grpcio": ("1.76.0", "1.85.3"),
    "grpcio-status": ("1.76.0", "1.85.3"),
    "numpy": ("2.1.0", "2.5.5"),
    "pandas": ("2.2.2", "2.3.3"),
    "prometheus-client": ("0.22.0", "0.26.0"),
    "psycopg": ("3.2.1", "3.3.9"),
    "pyarrow": ("21.0.0", "26.0.1"),
    "pydantic": ("2.11.0", "2.14.4"),
    "pyiceberg": ("0.11.0", "0.12.0"),
    "pyspark": ("4.1.4", "4.1.4"),
    "rich": ("14.0.0", "15.0.0"),
    "sqlglot": ("30.22.0", "30.30.0"),
    "tenacity": ("9.0.0", "9.2.1"),
    "tomli": ("2.1.0", "2.5.0"),
    "typer": ("0.29.0", "0.29.2"),
    "zstandard": ("0.25.0", "0.25.0"),
}
"""package -> the lowest and the newest version"""
