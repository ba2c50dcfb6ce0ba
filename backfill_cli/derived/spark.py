"""What a SELECT in Spark's SQL may call: Spark does not tell whether a function's value is of its arguments alone.

Functions are told by the tokens, whatever the parser makes of them. What is not listed here is refused by name.
"""

import re
from collections.abc import Collection, Iterable, Sequence

import sqlglot
from sqlglot import Token, TokenType, exp

from backfill_cli.contracts import own
from backfill_cli.derived.reading import OF_ROWS, ORDER_FREE, WINDOWS, refusal
from backfill_cli.errors import UsageError
from backfill_cli.model.derived import Derived
from backfill_cli.model.schema import Columns

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
_TEXTS = frozenset(
    {"lower", "lcase", "upper", "ucase", "trim", "ltrim", "rtrim", "btrim", "substring", "substr", "left", "right"}
    | {"lpad", "rpad", "replace", "translate", "concat", "concat_ws", "split_part", "reverse", "repeat", "initcap"}
    | {"substring_index", "chr", "char", "regexp_extract", "regexp_replace", "regexp_substr", "hex", "base64"}
    | {"date_format", "get_json_object"}
)
"""Those that make a text: one of constants could be 'today', which Spark reads as a date in constants only."""
_TIME_OF_DAY = re.compile(r"\s*T?\d{1,2}:.*", re.DOTALL)
"""A text that Spark reads as this time of the current day, in a constant and in a row."""
_INSTANTS = (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ)
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


def require_no_moment(derived: Derived, tables: Iterable[Columns]) -> None:
    """No text of the SELECT can be read as a time of the moment. tables: the columns of what it can read.

    Raises UsageError. Row texts that are compared with a time as they are, are not looked for.
    """
    tokens = sqlglot.tokenize(derived.sql, dialect="spark")
    for at, token in enumerate(tokens):
        if token.token_type in _STRINGS and _is_time_of_day(token.text):
            what = f"{token.text!r}: a time of day, which Spark can take for one of the current day"
            raise refusal(derived.name, what, "write a whole date and time")
        if (
            token.text.lower() in _TEXTS
            and at + 1 < len(tokens)
            and tokens[at + 1].token_type == TokenType.L_PAREN
        ):
            call = derived.sql[token.start : _closing(tokens, at + 1).end + 1]
            if _is_constant(sqlglot.parse_one(call, dialect="spark")):
                raise _made(derived, f"{call}: a text that is made of constants")
    texts = {own.fold(name) for table in tables for name, one in table.items() if one["type"] == "string"}
    nodes = list(sqlglot.parse_one(derived.sql, dialect="spark").walk())
    texts |= _renamed(nodes, texts)
    for node in nodes:
        if (isinstance(node, exp.DPipe) or _is_text(node)) and _is_constant(node):
            raise _made(derived, f"{node.sql('spark')}: a text that is made of constants")
    for node in nodes:
        read = _read_as_instant(node)
        if read is not None and _can_be_text(read, texts):
            what = f"{node.sql('spark')}: a text that is read as a time is of the current day if it has no date"
            raise refusal(derived.name, what, "say its format: to_timestamp(status, 'yyyy-MM-dd HH:mm:ss')")


def _made(derived: Derived, what: str) -> UsageError:
    return refusal(derived.name, f"{what}, which can be one of the moment ('today')", "write it as one text")


def _is_time_of_day(told: str) -> bool:
    return _TIME_OF_DAY.fullmatch(told) is not None


def _closing(tokens: Sequence[Token], at: int) -> Token:
    """The bracket that closes the one at this place."""
    depth = 0
    for token in tokens[at:]:
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if not depth:
            return token
    return tokens[-1]


def _is_constant(node: exp.Expr) -> bool:
    return not any(node.find_all(exp.Column, exp.Star))


def _is_text(node: exp.Expr) -> bool:
    return isinstance(node, exp.Cast) and node.to.this in exp.DataType.TEXT_TYPES


def _read_as_instant(node: exp.Expr) -> exp.Expr | None:
    """What is read as a timestamp without a format; None if nothing is."""
    found: exp.Expr | None = None
    if isinstance(node, exp.Cast) and node.to.this in _INSTANTS:
        found = node.this
    if isinstance(node, exp.Anonymous) and node.name.lower() == "try_to_timestamp" and len(node.expressions) == 1:
        found = node.expressions[0]
    return found


def _renamed(nodes: Sequence[exp.Expr], texts: Collection[str]) -> set[str]:
    """Names that queries in FROM give to what can be a text. texts: columns of tables that are some."""
    found = {own.fold(one.name) for node in nodes if isinstance(node, exp.TableAlias) for one in node.columns}
    named = [(own.fold(node.alias), node.this) for node in nodes if isinstance(node, exp.Alias)]
    for _ in named:  # one can be of another
        found |= {name for name, node in named if _can_be_text(node, found | set(texts))}
    return found


def _can_be_text(node: exp.Expr, texts: Collection[str]) -> bool:
    """texts: columns that are some. A literal has been looked at; a function's value may be one."""
    if isinstance(node, (exp.Paren, exp.Min, exp.Max)):
        return _can_be_text(node.this, texts)
    if isinstance(node, exp.Column):
        return own.fold(node.name) in texts
    if isinstance(node, exp.Cast):
        return _is_text(node)
    return not isinstance(node, (exp.Literal, exp.Null, exp.TsOrDsToDate, exp.TsOrDsAdd, exp.TimestampTrunc))


_STRINGS = (TokenType.STRING, TokenType.NATIONAL_STRING, TokenType.BYTE_STRING, TokenType.HEX_STRING)
assert AGGREGATES <= ORDER_FREE
