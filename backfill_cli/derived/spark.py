"""What a SELECT in Spark's SQL may call: Spark does not tell whether a function's value is of its arguments alone.

Functions are told by the tokens, whatever the parser makes of them. What is not listed here is refused by name.
"""

import sqlglot
from sqlglot import TokenType

from backfill_cli.derived.reading import OF_ROWS, ORDER_FREE, WINDOWS, refusal
from backfill_cli.model.derived import Derived

AGGREGATES = frozenset(
    {"count", "sum", "avg", "min", "max", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor"}
    | {"stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp"}
)
"""Those of ORDER_FREE under the names that Spark has for them, and its parser here too."""
_SCALAR = frozenset(
    {"abs", "ceil", "ceiling", "floor", "round", "bround", "mod", "pmod", "sign", "signum", "power", "pow", "sqrt"}
    | {"exp", "ln", "log", "log10", "log2", "negative", "positive", "greatest", "least", "width_bucket"}
    | {"coalesce", "nullif", "ifnull", "nvl", "nvl2", "if", "isnull", "isnotnull", "nanvl", "isnan", "equal_null"}
    | {"try_add", "try_subtract", "try_multiply", "try_divide", "try_mod", "try_to_date", "try_to_timestamp"}
    | {"lower", "lcase", "upper", "ucase", "trim", "ltrim", "rtrim", "btrim", "length", "char_length", "len"}
    | {"character_length", "octet_length", "bit_length", "substring", "substr", "left", "right", "lpad", "rpad"}
    | {"replace", "translate", "concat", "concat_ws", "split_part", "instr", "locate", "position", "reverse"}
    | {"repeat", "initcap", "startswith", "endswith", "contains", "substring_index", "ascii", "chr", "char"}
    | {"regexp_extract", "regexp_replace", "regexp_like", "regexp_count", "regexp_substr", "levenshtein"}
    | {"hex", "unhex", "base64", "unbase64", "md5", "sha", "sha1", "sha2", "crc32", "hash", "xxhash64"}
    | {"year", "quarter", "month", "day", "dayofmonth", "dayofweek", "dayofyear", "weekday", "weekofyear", "hour"}
    | {"minute", "second", "date_trunc", "trunc", "date_add", "dateadd", "date_sub", "datediff", "date_diff"}
    | {"add_months", "months_between", "last_day", "next_day", "make_date", "to_date", "to_timestamp"}
    | {"date_format", "unix_date", "date_from_unix_date", "unix_seconds", "unix_millis", "unix_micros"}
    | {"timestamp_seconds", "timestamp_millis", "timestamp_micros", "extract", "date_part", "datepart"}
    | {"cast", "try_cast", "struct", "named_struct", "get_json_object"}
)
"""Functions that depend on their arguments alone; the time zone is always UTC."""
_TYPES = frozenset({"decimal", "numeric", "dec", "varchar"})
_WORDS = frozenset(
    {
        "and",
        "or",
        "not",
        "in",
        "on",
        "using",
        "over",
        "filter",
        "from",
        "where",
        "having",
        "select",
        "distinct",
        "by",
    }
    | {
        "as",
        "when",
        "then",
        "else",
        "case",
        "between",
        "like",
        "rlike",
        "regexp",
        "join",
        "values",
        "all",
        "union",
    }
    | {"partition", "is", "with", "div", "exists", "qualify", "interval"}
)
"""Words of the language that a bracket can follow."""
_UNSAFE = ("\\", "${", "|>", "/*")
"""Where Spark and the parser here could read a text differently: escapes, substitutions, pipes, comments in
brackets."""


def require_known(derived: Derived) -> None:
    """Every function that the SELECT calls is known. Raises UsageError, which names the first that is not."""
    for piece in _UNSAFE:
        if piece in derived.sql:
            raise refusal(derived.name, f"{piece}: it is not taken in Spark's SQL", "write the SELECT without it")
    tokens = sqlglot.tokenize(derived.sql, dialect="spark")
    for at, token in enumerate(tokens):
        if token.token_type in (TokenType.RAW_STRING, TokenType.HEREDOC_STRING):
            raise refusal(derived.name, f"{token.text!r}: a raw string", "write it as a string")
        if at == 0 or token.token_type != TokenType.L_PAREN:
            continue
        before = tokens[at - 1]
        quoted = before.token_type == TokenType.IDENTIFIER
        if not quoted and (not before.text[:1].isidentifier() or before.token_type in _STRINGS):
            continue
        name = before.text.lower()
        if (at > 1 and tokens[at - 2].token_type == TokenType.ALIAS) or (not quoted and name in _WORDS | _TYPES):
            continue
        if at > 1 and tokens[at - 2].token_type == TokenType.DOT:
            raise refusal(derived.name, f"{tokens[at - 3].text}.{name}: a function of a schema", OF_ROWS)
        if quoted or name not in AGGREGATES | WINDOWS | _SCALAR:
            what = f"{name}: its value is not of its arguments alone, as far as is known here"
            raise refusal(derived.name, what, OF_ROWS)


_STRINGS = (TokenType.STRING, TokenType.NATIONAL_STRING, TokenType.BYTE_STRING, TokenType.HEX_STRING)
assert AGGREGATES <= ORDER_FREE
