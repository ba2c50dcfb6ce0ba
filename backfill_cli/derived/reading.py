"""The text of a derived table becomes a `Query`, or is refused by name.

Tokens say where each piece is in the text, so that pieces are used as they were written; the parser's tree of each
SELECT says what the pieces are. Whatever neither this module nor a rule below knows is refused: never taken on
trust. Imported inside functions only: the parser takes longer to load than a command takes.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NoReturn

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.errors import ParseError, SqlglotError

from backfill_cli.contracts import own
from backfill_cli.derived.engines import Engine
from backfill_cli.derived.guard import guarded
from backfill_cli.derived.query import All, Call, Item, Leaf, Select, Values, Whole, all_computed, computed_in
from backfill_cli.errors import Hint, UsageError, in_config
from backfill_cli.model.derived import Base, Derived

ORDER_FREE = frozenset(
    {
        "count",
        "count_star",
        "sum",
        "avg",
        "min",
        "max",
        "bool_and",
        "bool_or",
        "every",
        "bit_and",
        "bit_or",
        "bit_xor",
    }
    | {"stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp"}
)
"""Aggregates whose value does not depend on the order of rows."""
FLOATS = frozenset({"FLOAT", "DOUBLE", "REAL", "DOUBLE PRECISION"})
ORDERED = frozenset({"sum", "avg", "stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp"})
"""Aggregates whose floating-point value depends, in its last digits, on the order of rows."""
WINDOWS = frozenset({"row_number", "rank", "dense_rank"})
"""Window functions that are taken, beside these aggregates."""
logging.getLogger("sqlglot").disabled = True
"""What it cannot read is refused here, by name; what it would say goes to stderr."""
_SIDES = {"LEFT", "RIGHT", "FULL", "INNER", "OUTER", "CROSS", "NATURAL", "SEMI", "ANTI", "ASOF", "POSITIONAL"}
_CLAUSES = {
    TokenType.WHERE,
    TokenType.GROUP_BY,
    TokenType.HAVING,
    TokenType.QUALIFY,
    TokenType.WINDOW,
    TokenType.ORDER_BY,
}
_BRACKETS = {
    TokenType.L_PAREN: TokenType.R_PAREN,
    TokenType.L_BRACKET: TokenType.R_BRACKET,
    TokenType.L_BRACE: TokenType.R_BRACE,
}
_SETS = {TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT}
TAKEN = {
    "expressions",
    "from_",
    "joins",
    "where",
    "group",
    "having",
    "qualify",
    "order",
    "distinct",
    "kind",
    "hint",
}
"""The parts of a SELECT that are taken; of these only some in each place."""
_OF_THE_MOMENT = (
    exp.CurrentDate,
    exp.CurrentDatetime,
    exp.CurrentTime,
    exp.CurrentTimestamp,
    exp.CurrentUser,
    exp.Rand,
    exp.Randn,
    exp.Uuid,
    exp.Localtime,
    exp.Localtimestamp,
    exp.SessionUser,
    exp.CurrentSchema,
)
MOMENT = frozenset(
    {
        "now",
        "today",
        "current_date",
        "current_time",
        "current_timestamp",
        "localtime",
        "localtimestamp",
        "timeofday",
    }
    | {
        "transaction_timestamp",
        "statement_timestamp",
        "clock_timestamp",
        "get_current_timestamp",
        "get_current_time",
    }
    | {
        "random",
        "setseed",
        "uuid",
        "gen_random_uuid",
        "uuidv7",
        "uuidv4",
        "nextval",
        "currval",
        "lastval",
        "txid_current",
    }
    | {"current_user", "session_user", "user", "current_schema", "current_schemas", "current_database", "version"}
    | {"current_setting", "pg_backend_pid", "age", "current_localtime", "current_localtimestamp", "current_query"}
)
"""Functions, and words, whose value is of the moment or the session. `age` with one argument is of today."""

SETS = frozenset({"generate_subscripts", "regexp_split_to_table", "unnest"})
"""DuckDB's macros that make several rows of one, which are no table functions there."""


_STRINGS = {
    TokenType.STRING,
    TokenType.BYTE_STRING,
    TokenType.HEREDOC_STRING,
    TokenType.UNICODE_STRING,
    TokenType.NATIONAL_STRING,
    TokenType.RAW_STRING,
}
_MOMENTS = frozenset({"now", "today", "tomorrow", "yesterday"})
_BESIDE = frozenset(
    {"allballs", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}
    | {"january", "february", "august", "september", "october", "november", "december"}
)


def _tells_a_moment(text: str) -> bool:
    """Whether a text can be read as a time of the moment: one of these words, with a time or zone beside it."""
    words = set(re.findall("[a-z_/]+", text.lower()))
    return bool(words & _MOMENTS) and all(len(one) <= 5 or "/" in one for one in words - _MOMENTS - _BESIDE)


@dataclass(frozen=True, slots=True)
class Read:
    """A text that is taken. source: the user's. splices: what gives its tables their own names. computed: see
    `computed_in`. used: how often each of these is read, by its id.
    """

    query: Select | All | Whole
    source: str
    splices: tuple[tuple[int, int, str], ...]
    computed: tuple[Select, ...]
    used: Mapping[int, int]

    def spliced(self, more: Iterable[tuple[int, int, str]] = ()) -> str:
        """The user's text with the tables' own names, and these other pieces: (from, to, instead)."""
        at, parts = 0, []
        for start, end, instead in sorted([*self.splices, *more], key=lambda one: (one[0], one[1])):
            parts += [self.source[at:start], instead]
            at = end
        return "".join([*parts, self.source[at:]])


def read(derived: Derived, bases: Sequence[Base], engine: Engine) -> Read:
    """Raises UsageError, which names the derived table and the piece of SQL, for what cannot be kept exact."""
    return Reader(derived, bases, engine).read()


_Scope = Mapping[str, Select | All]
"""What a name in FROM can mean besides a table: the queries of WITH, by name."""


class Reader:
    def __init__(self, derived: Derived, bases: Sequence[Base], engine: Engine) -> None:
        self.derived, self.bases, self.engine = derived, bases, engine
        self.text = derived.sql
        self.splices: list[tuple[int, int, str]] = []
        self.trees: dict[tuple[int, int], exp.Expr] = {}

    def refuse(self, what: str, hint: str) -> NoReturn:
        raise refusal(self.derived.name, what, hint)

    def read(self) -> Read:
        try:
            tokens = sqlglot.tokenize(self.text, dialect=self.engine.dialect)
        except SqlglotError as exc:
            self.unreadable(exc)
        while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
            tokens.pop()
        if any(one.token_type == TokenType.SEMICOLON for one in tokens):
            self.refuse("several statements", "leave one query in derived.sql")
        if not tokens:
            self.refuse("no SQL", "write a query in derived.sql")
        self.tokens = tokens
        self.text = self.text[: tokens[-1].end + 1]
        self.closing = self._brackets()
        self._whole()
        query = self.outermost()
        used = Counter(map(id, all_computed(query)))
        return Read(query, self.text, tuple(self.splices), tuple(computed_in(query)), used)

    def unreadable(self, exc: Exception) -> NoReturn:
        where = exc.errors[0] if isinstance(exc, ParseError) and exc.errors else None
        at = f": {where['description']}, line {where['line']}, column {where['col']}" if where else ""
        self.refuse(f"its SQL cannot be read{at}", "correct derived.sql")

    def unclear(self, start: int, end: int) -> NoReturn:
        """What the parser took, and no rule here knows."""
        self.refuse(f"its SQL cannot be read near {self.shown(start, end)}", "correct derived.sql")

    def _whole(self) -> None:
        """What is refused wherever it stands."""
        tree = self._tree(0, len(self.tokens))
        if not isinstance(tree, (exp.Select, exp.SetOperation)):
            self.refuse(f"no SELECT but {self.piece(0, len(self.tokens))}", "write one query in derived.sql")
        for node in tree.walk():
            if isinstance(node, _OF_THE_MOMENT) or (
                isinstance(node, (exp.Anonymous, exp.Func)) and function_of(node) in MOMENT
            ):
                self.moment(function_of(node))
            if isinstance(node, (exp.Limit, exp.Offset, exp.Fetch)):
                self._limited(node)
            if isinstance(node, exp.TableSample):
                self.refuse("a sample is other rows each time", KEEP_ALL)
            if isinstance(node, (exp.Lateral, exp.Unnest, exp.Pivot, exp.MatchRecognize, exp.Explode)):
                self.refuse(f"{node.key.upper()} in {_sql(node, self.engine)}", MAKE_COLUMN)
            if isinstance(node, exp.Func) and function_of(node) in SETS:
                self.refuse(f"{function_of(node)}: it makes several rows of one", MAKE_COLUMN)
            if isinstance(node, (exp.Placeholder, exp.Parameter, exp.Columns, exp.PositionalColumn)):
                self.refuse(f"{_sql(node, self.engine)}: columns are named", "name each column")
            if isinstance(node, exp.Identifier) and own.is_own(node.name):
                self.refuse(f"{node.name!r}: names that begin with {own.PREFIX} are backfill's own", "rename it")

        if self.engine.moments:
            texts = [one for one in self.tokens if one.token_type in _STRINGS]
            for token in texts:
                if _tells_a_moment(token.text):
                    self.moment(repr(token.text))
                if token.token_type == TokenType.UNICODE_STRING:
                    self.refuse(f"U&{token.text!r}: its letters can be written by numbers", "write the letters")
            for before, token in pairwise(self.tokens):
                if before.token_type in _STRINGS and token.token_type in _STRINGS:
                    what = f"{before.text!r} {token.text!r}: a text in two pieces, which can tell a moment"
                    self.refuse(what, "write it as one text")

    def _limited(self, node: exp.Expr) -> None:
        self.refuse(
            f"{node.key.upper()}: which rows it keeps is not settled by a change alone",
            or_refreshed(KEEP_ALL, self.engine),
        )

    def moment(self, name: str) -> NoReturn:
        self.refuse(f"{name}: its value is of the moment or of the session, not of the rows", OF_ROWS)

    def _brackets(self) -> dict[int, int]:
        opened, closing = [], {}
        for at, token in enumerate(self.tokens):
            if token.token_type in _BRACKETS:
                opened.append(at)
            elif token.token_type in _BRACKETS.values():
                if not opened or _BRACKETS[self.tokens[opened[-1]].token_type] != token.token_type:
                    self.refuse("its SQL cannot be read: a bracket too many", "correct derived.sql")
                closing[opened.pop()] = at
        if opened:
            self.refuse("its SQL cannot be read: a bracket is not closed", "correct derived.sql")
        return closing

    def piece(self, start: int, end: int) -> str:
        """The text of tokens, from `start` to before `end`."""
        return self.text[self.tokens[start].start : self.tokens[end - 1].end + 1] if start < end else ""

    def shown(self, start: int, end: int) -> str:
        """The same for a message."""
        said = " ".join(self.piece(start, end).split())
        return said if len(said) <= 60 else said[:57] + "…"

    def flat(self, start: int, end: int) -> Iterator[int]:
        """The places of tokens that are in no bracket."""
        while start < end:
            yield start
            start = self.closing.get(start, start) + 1

    def _tree(self, start: int, end: int) -> exp.Expr:
        """Of these tokens; whoever would change it changes a copy."""
        if (start, end) not in self.trees:
            self.trees[start, end] = self._parsed(start, end)
        return self.trees[start, end]

    def _parsed(self, start: int, end: int) -> exp.Expr:
        parser = sqlglot.Dialect.get_or_raise(self.engine.dialect).parser()
        try:
            found = parser.parse(self.tokens[start:end], self.text)
        except RecursionError:
            self.refuse("its SQL has brackets within brackets, too many to be read", "leave out some brackets")
        except SqlglotError as exc:
            self.unreadable(exc)
        if len(found) != 1 or found[0] is None:
            self.unclear(start, end)
        return found[0]

    # -- queries

    def outermost(self) -> Select | All | Whole:
        """The query that the whole text is; what it reads is spliced."""
        return self.query(0, len(self.tokens), {})

    def query(self, start: int, end: int, scope: _Scope) -> Select | All:
        if self.tokens[start].token_type == TokenType.WITH:
            start, scope = self.with_(start, end, scope)
        cuts = [at for at in self.flat(start, end) if self.tokens[at].token_type in _SETS]
        if not cuts:
            return self.select(start, end, scope)
        branches, at = list[Select](), start
        for cut in [*cuts, end]:
            branches.append(self.select(at, cut, scope, "UNION ALL", named=not branches))
            if cut < end:
                if self.tokens[cut].token_type != TokenType.UNION or self.tokens[cut + 1].text.upper() != "ALL":
                    what = self.tokens[cut].text.upper()
                    self.refuse(
                        f"{what}: a row's reach is not that of one of its parts",
                        or_refreshed("write UNION ALL, or make each part a [[derived]] of its own", self.engine),
                    )
                at = cut + 2
        if len({len(one.items) for one in branches}) > 1:
            self.refuse(
                "the parts of UNION ALL have different numbers of columns", "give each part the same columns"
            )
        return All(tuple(branches))

    def with_(self, at: int, end: int, scope: _Scope) -> tuple[int, _Scope]:
        """The place after WITH, and the scope with its queries."""
        at += 1
        if self.tokens[at].text.upper() == "RECURSIVE" or self.tokens[at].token_type == TokenType.RECURSIVE:
            self.refuse(
                "WITH RECURSIVE: how far a change reaches is known only by running it",
                or_refreshed(MAKE_COLUMN, self.engine),
            )
        while True:
            name = self.identifier(at)
            opened = next(one for one in range(at + 1, end) if self.tokens[one].token_type == TokenType.L_PAREN)
            if opened == at + 1 and self.closing[opened] + 1 < end:
                self.refuse(
                    f"WITH {self.shown(at, self.closing[opened] + 1)}: columns are named in a list",
                    "name them inside it, by AS",
                )
            found = self.query(opened + 1, self.closing[opened], scope)
            scope = {**scope, name: found}
            at = self.closing[opened] + 1
            if self.tokens[at].token_type != TokenType.COMMA:
                return at, scope
            at += 1

    def identifier(self, at: int) -> str:
        token = self.tokens[at]
        return self.engine.name(token.text, token.token_type == TokenType.IDENTIFIER)

    def select(self, start: int, end: int, scope: _Scope, within: str = "", named: bool = True) -> Select:
        """named: whether its columns' names are those of the result."""
        if self.tokens[start].token_type != TokenType.SELECT:
            what = f"{within} of " if within else ""
            self.refuse(
                f"{what}{self.shown(start, end)}: not a SELECT",
                "write it as a query without brackets around it",
            )
        tree = self._tree(start, end)
        if not isinstance(tree, exp.Select):
            self.unclear(start, end)
        for name, value in tree.args.items():
            if value and name not in TAKEN:
                self.refuse(f"{name.strip('_').upper()} in {self.shown(start, end)}", "leave it out")
        if tree.args.get("kind") or tree.args.get("hint"):
            self.refuse(f"{self.shown(start, start + 2)}", "leave it out")
        if within and tree.args.get("order"):
            self.refuse("ORDER BY after UNION ALL: a table has no order", "leave it out")
        clauses = self._clauses(start, end)
        first_item = self._after_distinct(start)
        from_at = clauses.get(TokenType.FROM, None)
        starts = sorted(clauses.values())
        stop = dict(zip(starts, [*starts[1:], end], strict=False))
        items_end = starts[0] if starts else end
        after_from = stop[from_at] if from_at is not None else items_end
        leaves, commas = self._leaves(from_at + 1, after_from, tree, scope) if from_at is not None else ((), ())
        columns = _Columns(leaves, self)
        items = self._items(first_item, items_end, tree, columns, named)
        grows = any(map(_is_star, tree.expressions)) and any(leaf.grows for leaf in leaves)
        if grows and (within or len(tree.expressions) > 1):
            self.refuse(
                f"a star in {self.shown(start, end)}: once a table gains a column, its columns are others",
                "name each column",
            )
        rest = [at for kind, at in clauses.items() if kind not in (TokenType.FROM, TokenType.WHERE)]
        made = Select(
            items,
            leaves,
            self.tokens[after_from - 1].end + 1,
            commas=commas,
            grows=grows,
            head=self.piece(start, items_end),
            tail=self.piece(min(rest), end) if rest else "",
        )
        if (at := clauses.get(TokenType.WHERE)) is not None:
            span = self.tokens[at + 1].start, self.tokens[stop[at] - 1].end + 1
            self._no_subquery(tree.args["where"])
            condition = columns.qualified(tree.args["where"].this)
            if condition.find(exp.AggFunc, exp.Window):
                self.refuse(f"WHERE {self.shown(at + 1, stop[at])}: it has an aggregate", "write HAVING")
            made = replace(made, where=self.piece(at + 1, stop[at]), where_at=span, condition=condition)
        having_at = clauses.get(TokenType.HAVING)
        having = (having_at + 1, stop[having_at]) if having_at is not None else None
        return self._shaped(made, tree, having)

    def _after_distinct(self, start: int) -> int:
        at = start + 1
        if self.tokens[at].token_type == TokenType.ALL:
            return at + 1
        if self.tokens[at].token_type == TokenType.DISTINCT:
            at += 1
            if self.tokens[at].token_type == TokenType.ON:
                return self.closing[at + 1] + 1
        return at

    def _clauses(self, start: int, end: int) -> dict[TokenType, int]:
        found: dict[TokenType, int] = {}
        for at in self.flat(start + 1, end):
            kind = self.tokens[at].token_type
            is_from = kind == TokenType.FROM and TokenType.FROM not in found
            if (is_from and self.tokens[at - 1].token_type != TokenType.DISTINCT) or kind in _CLAUSES:
                if kind in found:
                    self.unclear(at, end)
                found[kind] = at
        return found

    # -- FROM

    def _leaves(
        self, start: int, end: int, tree: exp.Select, scope: _Scope
    ) -> tuple[tuple[Leaf, ...], tuple[tuple[int, int], ...]]:
        begins, ends, commas = [start], [], []
        for at in self.flat(start, end):
            kind = self.tokens[at].token_type
            if kind == TokenType.COMMA:
                ends.append(at)
                begins.append(at + 1)
                commas.append((self.tokens[at].start, self.tokens[at].end + 1))
            elif kind == TokenType.JOIN:
                back = at
                while self.tokens[back - 1].text.upper() in _SIDES and (
                    self.tokens[back - 1].token_type != TokenType.IDENTIFIER
                ):
                    back -= 1
                ends.append(back)
                begins.append(at + 1)
        ends.append(end)
        joins = tree.args.get("joins") or []
        if len(begins) != 1 + len(joins):
            self.refuse(
                f"FROM {self.shown(start, end)}: brackets around joins", "write the joins one after the other"
            )
        leaves: list[Leaf] = []
        after = 0  # those since the last comma
        for number, (begin, stop) in enumerate(zip(begins, ends, strict=True)):
            join = joins[number - 1] if number else None
            leaf = self._leaf(begin, stop, scope)
            if any(leaf.name == other.name for other in leaves):
                self.refuse(
                    f"two things in FROM are called {leaf.name!r}", "give one another name: FROM orders AS o"
                )
            if join is None:
                leaves.append(leaf)
            elif self.tokens[begin - 1].token_type == TokenType.COMMA:
                after = len(leaves)
                leaves.append(replace(leaf, joined=","))
            else:  # a join binds tighter than a comma
                leaves.append(self._joined(leaf, join, begin, stop, leaves, after))
        return tuple(leaves), tuple(commas)

    def _joined(self, leaf: Leaf, join: exp.Join, begin: int, stop: int, left: Sequence[Leaf], after: int) -> Leaf:
        """after: how many of those to the left its condition does not see."""
        kind, side = (join.args.get("kind") or "").upper(), (join.args.get("side") or "").upper()
        if side == "FULL":
            self.refuse(
                "FULL JOIN: a row that comes takes away rows of both sides",
                or_refreshed("write LEFT JOIN, or UNION ALL of two queries", self.engine),
            )
        if join.args.get("method") or kind not in ("", "INNER", "CROSS", "OUTER") or join.args.get("global_"):
            what = " ".join(filter(None, [str(join.args.get("method") or "").upper(), kind]))
            self.refuse(f"{what} JOIN", _WRITTEN.get(kind, "write JOIN … ON with all its conditions"))
        before = left[after:]
        if side == "RIGHT" and len(left) > 1:
            self.refuse("RIGHT JOIN after another join", "begin with its right side, and write LEFT JOIN")
        on_at = next(
            (at for at in self.flat(begin, stop) if self.tokens[at].token_type in (TokenType.ON, TokenType.USING)),
            None,
        )
        joined = f"{side} JOIN" if side else "CROSS JOIN" if on_at is None else "JOIN"
        if on_at is None:
            if side:
                self.refuse(
                    f"{side} JOIN {self.shown(begin, stop)}: without a condition", "write ON and its condition"
                )
            return replace(leaf, joined=joined)
        if join.args.get("on"):
            self._no_subquery(join.args["on"])
        columns = _Columns([*before, leaf], self)
        using: tuple[str, ...] = ()
        if join.args.get("using"):
            listed = [one if isinstance(one, exp.Identifier) else one.this for one in join.args["using"]]
            names = [self.engine.name(one.name, bool(one.args.get("quoted"))) for one in listed]
            using = tuple(map(self.engine.quoted, names))
            owners = [self._merged(name, before, leaf) for name in names]
            condition: exp.Expr = exp.and_(
                *(
                    exp.EQ(this=_column(one, name), expression=_column(leaf.name, name))
                    for one, name in zip(owners, names, strict=True)
                )
            )
            test = " AND ".join(
                f"{self.engine.quoted(one)}.{name} = {self.engine.quoted(leaf.name)}.{name}"
                for one, name in zip(owners, using, strict=True)
            )
        else:
            condition = columns.qualified(join.args["on"])
            if condition.find(exp.AggFunc, exp.Window):
                self.refuse(f"ON {self.shown(on_at + 1, stop)}: it has an aggregate", "write HAVING")
            test = self.piece(on_at + 1, stop)
        on = self.piece(on_at, stop)
        return replace(leaf, joined=joined, on=on, test=test, condition=condition, using=using)

    def _merged(self, name: str, left: Sequence[Leaf], right: Leaf) -> str:
        """The leaf to the left whose column USING compares. Raises where another can have one of that name."""
        has = next((one for one in left if name in dict(one.columns)), None)
        if has is None or name not in dict(right.columns):
            self.refuse(f"USING ({name}): both sides must have that column", "write ON and its condition")
        quoted = self.engine.quoted(name)
        others = left[1:] if has is left[0] else left
        if not all(quoted in one.using for one in others):
            self.refuse(
                f"USING ({name}): once another table before it gains a column of that name, it can be either",
                f"write ON {has.name}.{name} = {right.name}.{name}",
            )
        # of a RIGHT JOIN the merged column is that of its right side
        return left[1].name if left[1:] and left[1].joined == "RIGHT JOIN" else has.name

    def _leaf(self, begin: int, stop: int, scope: _Scope) -> Leaf:
        tokens = self.tokens
        on_at = next(
            (at for at in self.flat(begin, stop) if tokens[at].token_type in (TokenType.ON, TokenType.USING)), stop
        )
        if begin >= on_at:
            self.unclear(begin - 1, stop)
        if tokens[begin].token_type == TokenType.L_PAREN:
            end = self.closing[begin] + 1
            first = tokens[begin + 1].token_type
            if first not in (TokenType.VALUES, TokenType.SELECT, TokenType.WITH):
                self.refuse(
                    f"FROM {self.shown(begin, end)}: brackets around joins", "write the joins one after the other"
                )
            name, alias, columns = self._alias(end, on_at)
            if not name:
                self.refuse(f"FROM {self.shown(begin, end)}: it has no name", "give it one: (SELECT …) AS one")
            if first == TokenType.VALUES:
                self._only_values(begin + 1, end - 1)
                if not columns:
                    self.refuse(
                        f"{self.shown(begin, end)}: its columns have no names", "name them: (VALUES …) AS v(a, b)"
                    )
                return Leaf(Values(), self.piece(begin, end), alias, name, columns, self.engine.quoted(name))
            found = self.query(begin + 1, end - 1, scope)
            self._require_fixed(columns, any(one.grows for one in found.branches), begin, on_at)
            return self._nested(found, begin, end, name, alias, columns)
        at = begin
        while at + 1 < on_at and tokens[at + 1].token_type == TokenType.DOT:
            at += 2
        name, alias, columns = self._alias(at + 1, on_at)
        if at + 1 < on_at and tokens[at + 1].token_type == TokenType.L_PAREN and not name:
            self.refuse(f"FROM {self.shown(begin, on_at)}: a table function", "read a table of the job")
        parts = [self.identifier(one) for one in range(begin, at + 1, 2)]
        if len(parts) == 1 and parts[0] in scope:
            found = scope[parts[0]]
            self._require_fixed(columns, any(one.grows for one in found.branches), begin, on_at)
            return self._nested(
                found, begin, at + 1, name or parts[0], alias or f" AS {self.engine.quoted(parts[0])}", columns
            )
        self._require_fixed(columns, True, begin, on_at)
        base = self._base(parts, self.piece(begin, at + 1))
        instead = base.sql if name else f"{base.sql} AS {self.engine.quoted(parts[-1])}"
        self.splices.append((tokens[begin].start, tokens[at].end + 1, instead))
        there = tuple((self._folded(one), self.engine.quoted(one)) for one in base.columns)
        columns = (*columns, *there[len(columns) :])
        name = name or parts[-1]
        called = alias or f" AS {self.engine.quoted(name)}"
        return Leaf(base, base.sql, called, name, columns, self.engine.quoted(name))

    def _require_fixed(self, listed: Sequence[object], grows: bool, begin: int, stop: int) -> None:
        if listed and grows:
            self.refuse(
                f"{self.shown(begin, stop)}: once the table gains a column called so, it can be either",
                "name its columns by AS in a query: FROM (SELECT id AS a FROM orders) AS o",
            )

    def _only_values(self, start: int, end: int) -> None:
        tree = self._tree(start, end)
        if not isinstance(tree, exp.Values) or tree.find(exp.Column, exp.Table, exp.Query) is not None:
            self.refuse(
                f"{self.shown(start, end)}: rows that are read from other things in FROM, or by a subquery",
                "write these rows as constants, and join what they read",
            )

    def _folded(self, name: str) -> str:
        return self.engine.name(name, True)

    def _nested(
        self,
        query: Select | All,
        begin: int,
        end: int,
        name: str,
        alias: str,
        columns: tuple[tuple[str, str], ...],
    ) -> Leaf:
        there = tuple((one.name, self.engine.quoted(one.name)) for one in query.items)
        columns = (*columns, *there[len(columns) :])
        return Leaf(query, self.piece(begin, end), alias, name, columns, self.engine.quoted(name))

    def _alias(self, at: int, stop: int) -> tuple[str, str, tuple[tuple[str, str], ...]]:
        """The name after something in FROM, its text, and the columns that it lists."""
        begin = at
        if at < stop and self.tokens[at].token_type == TokenType.ALIAS:
            at += 1
        if at >= stop or self.tokens[at].token_type == TokenType.L_PAREN:
            return "", "", ()
        name, columns = self.identifier(at), list[tuple[str, str]]()
        at += 1
        if at < stop and self.tokens[at].token_type == TokenType.L_PAREN:
            listed = map(self.identifier, range(at + 1, self.closing[at], 2))
            columns = [(one, self.engine.quoted(one)) for one in listed]
            at = self.closing[at] + 1
        if at < stop:
            self.unclear(begin, stop)
        return name, " " + self.piece(begin, at), tuple(columns)

    def _base(self, parts: Sequence[str], said: str) -> Base:
        found = self._matching(parts)
        if not found:
            known = ", ".join(sorted(base.names[0] for base in self.bases))
            self.refuse(
                f"{said} is no table of the job", f"read one of these: {known}; or add it as one of [[tables]]"
            )
        if len(found) > 1:
            names = ", ".join(base.names[0] for base in found)
            self.refuse(f"{said} can be each of {names}", "write its full name")
        return found[0]

    def _matching(self, parts: Sequence[str]) -> list[Base]:
        """The tables that a name in FROM can mean."""
        whole = ".".join(parts)
        return [
            base
            for base in self.bases
            if any(whole in (self._folded(name), self.engine.name(name, False)) for name in base.names)
        ]

    # -- items

    def _items(self, start: int, end: int, tree: exp.Select, columns: "_Columns", named: bool) -> tuple[Item, ...]:
        cuts = [at for at in self.flat(start, end) if self.tokens[at].token_type == TokenType.COMMA]
        if cuts and cuts[-1] == end - 1:
            self.refuse("a comma before FROM", "leave it out")
        spans = list(zip([start, *(at + 1 for at in cuts)], [*cuts, end], strict=True))
        if len(spans) != len(tree.expressions):
            self.unclear(start, end)
        items: list[Item] = []
        for (begin, stop), node in zip(spans, tree.expressions, strict=True):
            items += self._item(begin, stop, node, columns, named)
        names = [one.name for one in items]
        for name in names if named else ():
            if names.count(name) > 1:
                self.refuse(f"two output columns are called {name!r}", "name one by AS")
        return tuple(items)

    def _item(self, begin: int, stop: int, node: exp.Expr, columns: "_Columns", named: bool) -> Iterator[Item]:
        self._no_subquery(node)
        if _is_star(node):
            yield from self._star(begin, stop, node, columns.leaves)
            return
        if isinstance(node, exp.Alias):
            alias = node.args["alias"]
            name = self.engine.name(alias.name, bool(alias.args.get("quoted")))
            if self.tokens[stop - 1].text != alias.name:
                self.refuse(
                    f"{self.shown(begin, stop)}: its name is not at its end", "write it as: expression AS name"
                )
            stop -= 2 if self.tokens[stop - 2].token_type == TokenType.ALIAS else 1
            inner = node.this
        elif isinstance(node, exp.Column):
            name, inner = self.engine.name(node.name, bool(node.this.args.get("quoted"))), node
        elif named:
            self.refuse(f"the column {self.shown(begin, stop)} has no name", "name it by AS")
        else:
            name, inner = "", node
        found = columns.qualified(inner)
        aggregates = _aggregates(found)
        self._judge(found)
        windows = found.find(exp.Window) is not None
        calls = self._calls(begin, stop, aggregates)
        yield Item(name, self.piece(begin, stop), found, bool(aggregates), windows, calls)

    def _calls(self, start: int, end: int, aggregates: Sequence[exp.Expr]) -> tuple[Call, ...] | None:
        """The places of these aggregates, which are all that these tokens have; None if they are not found."""
        found, first = list[Call](), self.tokens[start].start
        for at in range(start, end - 1):
            token, name = self.tokens[at], self.tokens[at].text.lower()
            if at + 1 not in self.closing or name not in ORDER_FREE or token.token_type in _STRINGS:
                continue
            if token.token_type == TokenType.IDENTIFIER or self.tokens[at - 1].token_type == TokenType.DOT:
                continue
            close, last, limit = self.closing[at + 1], self.closing[at + 1], ""
            if close + 1 < end and self.tokens[close + 1].text.upper() == "FILTER":
                last = self.closing[close + 2]
                limit = f" {self.piece(close + 1, last + 1)}"
            span = token.start - first, self.tokens[last].end + 1 - first
            found.append(Call(name, *span, self.piece(at + 2, close), limit))
        same = sorted(one.name for one in found) == sorted(map(function_of, aggregates))
        return tuple(found) if same else None

    def _star(self, begin: int, stop: int, node: exp.Expr, leaves: Sequence[Leaf]) -> Iterator[Item]:
        if len(leaves) > 1:
            self.refuse(
                f"{self.shown(begin, stop)}: its columns change with the tables, and two could share a name",
                "name each column",
            )
        star = node if isinstance(node, exp.Star) else node.this
        if (
            any(star.args.get(name) for name in ("except_", "replace", "rename", "except"))
            or self.piece(begin, stop)[-1] != "*"
        ):
            self.refuse(f"{self.shown(begin, stop)}: a star that leaves out or replaces", "name each column")
        of = node.table if isinstance(node, exp.Column) else ""
        quoted = bool(of) and bool(node.args["table"].args.get("quoted"))
        wanted = [leaf for leaf in leaves if not of or leaf.name == self.engine.name(of, quoted)]
        if not wanted:
            self.refuse(f"{self.shown(begin, stop)}: nothing in FROM is called that", "name one of FROM")
        for leaf in wanted:
            for name, sql in leaf.columns:
                yield Item(name, f"{leaf.qualifier}.{sql}", _column(leaf.name, name))

    def _no_subquery(self, node: exp.Expr) -> None:
        for one in node.walk():
            if isinstance(one, (exp.Subquery, exp.Select, exp.Exists)) or (
                isinstance(one, exp.In) and one.args.get("query")
            ):
                self.refuse(
                    f"{_sql(one, self.engine)}: a subquery in an expression",
                    or_refreshed(
                        "join what it reads; or make it a [[derived]] of its own, and join that one", self.engine
                    ),
                )

    def _judge(self, tree: exp.Expr) -> None:
        """Raises for an aggregate or window whose value depends on the order of rows."""
        for one in _aggregates(tree):
            called = function_of(one)
            if called == "grouping":
                self._sets_of_groups(one)
            elif called not in ORDER_FREE:
                self.refuse(
                    f"{_sql(one, self.engine)}: its value depends on the order of rows",
                    "use one of " + ", ".join(sorted(ORDER_FREE - {"count_star", "every"})),
                )
        for window in tree.find_all(exp.Window):
            called = function_of(window.this)
            if called in WINDOWS and window.this.find(exp.Order):
                self.refuse(
                    f"{_sql(window, self.engine)}: its function has an order of its own",
                    f"write ORDER BY in OVER alone: {called}() OVER (ORDER BY …)",
                )
            if called not in WINDOWS | ORDER_FREE or window.args.get("spec"):
                self.refuse(
                    f"{_sql(window, self.engine)}: this window is not taken",
                    "use row_number, rank or dense_rank, or an aggregate OVER (PARTITION BY …)",
                )

    # -- what kind of SELECT it is

    def _shaped(self, made: Select, tree: exp.Select, having: tuple[int, int] | None) -> Select:
        args = tree.args
        lenient = _Columns(made.leaves, self, {item.name: item.tree for item in made.items})
        windows: list[exp.Window] = []
        for name in ("having", "qualify", "order"):
            if node := args.get(name):
                self._no_subquery(node)
                found = lenient.qualified(node)
                self._judge(found)
                windows += found.find_all(exp.Window)
                args = {**args, name: found}
        windows += [one for item in made.items for one in item.tree.find_all(exp.Window)]
        partitions = tuple(tuple(window.args.get("partition_by") or ()) for window in windows)
        groups = self._groups(args.get("group"), made, lenient)
        aggregates = any(item.aggregates for item in made.items) or args.get("having") is not None
        once_per: tuple[exp.Expr, ...] = ()
        distinct = args.get("distinct")
        if distinct is not None and (on := distinct.args.get("on")) is not None:
            listed = (
                on.expressions if isinstance(on, exp.Tuple) else [on.this if isinstance(on, exp.Paren) else on]
            )
            once_per = tuple(self._output(one, made, lenient) for one in listed)
            if groups is not None or windows:
                self.refuse("DISTINCT ON with groups or windows", "make the groups a [[derived]] of their own")
            order = args.get("order")
            self._total(
                [one.this for one in order.expressions] if order else [], once_per, made, "DISTINCT ON", lenient
            )
        for window in windows:
            if function_of(window.this) == "row_number":
                order = window.args.get("order")
                by = [one.this for one in order.expressions] if order else []
                self._total(by, window.args.get("partition_by") or (), made, "row_number()", lenient)
        one_row = aggregates and groups is None
        return self._parted(
            made,
            distinct=distinct is not None and not once_per,
            once_per=once_per,
            partitions=partitions,
            first=_first(args.get("qualify"), made),
            groups=groups,
            one_row=one_row,
            having=self._having(args["having"].this, *having) if having else None,
            qualify=args.get("qualify") is not None,
            plain=not (distinct or windows or aggregates or groups is not None or args.get("qualify")),
        )

    def _parted(self, made: Select, **shape: Any) -> Select:
        """The SELECT of this shape, with the expressions by which its rows can be computed apart."""
        made = replace(made, **shape)
        if made.plain or made.one_row:
            return made
        texts = [(item.tree, item.text) for item in made.items if not (item.aggregates or item.windows)]
        known = [tree for tree, _ in texts]
        parts = [made.groups, *made.partitions, made.once_per or None, known if made.distinct else None]
        several = [part for part in parts if part is not None]
        found = dict[exp.Expr, str]()
        for tree in several[0] if several else ():
            if not all(tree in part for part in several) or tree.find(exp.Column) is None:
                continue
            text = next((text for one, text in texts if one == tree), "") or self._spelt(tree, made.leaves)
            if text:
                found.setdefault(tree, text)
        by = [Item("", text, tree) for tree, text in found.items()]
        return replace(made, by=tuple(item for item in by if guarded(made, item, self.engine) is not None))

    def _spelt(self, tree: exp.Expr, leaves: Sequence[Leaf]) -> str:
        """SQL of a column; "" for any other expression."""
        for leaf in leaves:
            if isinstance(tree, exp.Column) and tree.table == leaf.name:
                return f"{leaf.qualifier}.{dict(leaf.columns)[tree.name]}"
        return ""

    def _having(self, tree: exp.Expr, start: int, end: int) -> Item:
        calls = self._calls(start, end, _aggregates(tree))
        return Item("", self.piece(start, end), tree, True, tree.find(exp.Window) is not None, calls)

    def _groups(self, group: exp.Expr | None, made: Select, lenient: "_Columns") -> tuple[exp.Expr, ...] | None:
        if group is None:
            return None
        if group.args.get("all"):
            return tuple(item.tree for item in made.items if not item.aggregates)
        if any(value for name, value in group.args.items() if name != "expressions") or any(
            isinstance(one, (exp.Rollup, exp.Cube, exp.GroupingSets, exp.Tuple)) for one in group.expressions
        ):
            self._sets_of_groups(group)
        if not group.expressions:
            self.refuse("GROUP BY without a column", "leave GROUP BY out")
        return tuple(self._output(one, made, lenient) for one in group.expressions)

    def _sets_of_groups(self, node: exp.Expr) -> None:
        self.refuse(
            f"{_sql(node, self.engine)}: several sets of groups",
            or_refreshed("write a query for each, joined by UNION ALL", self.engine),
        )

    def _output(self, node: exp.Expr, made: Select, lenient: "_Columns") -> exp.Expr:
        """What an expression of GROUP BY or DISTINCT ON stands for: a column's number is that column."""
        self._no_subquery(node)
        if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
            at = int(node.name) - 1
            if not 0 <= at < len(made.items):
                self.refuse(f"GROUP BY {node.name}: there is no such column", "count the output columns from 1")
            return made.items[at].tree
        return lenient.qualified(node)

    def _total(
        self, by: Sequence[exp.Expr], per: Sequence[exp.Expr], made: Select, what: str, lenient: "_Columns"
    ) -> None:
        """Raises unless no two rows are equal in the order."""
        known = {
            (one.table, one.name) for one in (*map(lenient.qualified, by), *per) if isinstance(one, exp.Column)
        }
        if (leaf := undetermined(made, known)) is not None:
            self.refuse(
                f"{what}: two rows can be equal in its order, and either would be the first",
                f"add the key of {leaf.name} at the end of its ORDER BY",
            )


KEEP_ALL = "keep all rows, and limit them where the table is queried"
READ_THAT = "make it a [[derived]] of its own, and read that one here"
MAKE_COLUMN = "let the upstream, or the table's transform, make columns of it"
OF_ROWS = "use a column of the rows, and compare it with the time where the table is queried"


_WRITTEN = {
    "SEMI": "write JOIN (SELECT DISTINCT …) with what ON compares",
    "ANTI": "write LEFT JOIN, and WHERE with what ON compares IS NULL",
}
"""How a join that only looks for rows is written as one that is taken."""


def or_refreshed(instead: str, engine: Engine) -> str:
    """What to write instead, and the option by which a SELECT of no known reach is taken."""
    return f'{instead}; or set derived.refresh = "full"' if engine.refreshes else instead


def refusal(name: str, what: str, hint: Hint | str) -> UsageError:
    hint = in_config(hint)
    return UsageError(f"derived table {name!r}: {what}", hint)


class _Columns:
    """What a column's name stands for. outputs: those of the SELECT, where its clauses can name them."""

    def __init__(
        self, leaves: Sequence[Leaf], reader: Reader, outputs: Mapping[str, exp.Expr] | None = None
    ) -> None:
        self.leaves, self.reader, self.outputs = leaves, reader, outputs

    def qualified(self, node: exp.Expr) -> exp.Expr:
        """The same, each column by the name of its leaf. Raises for a name that no leaf has."""
        return node.transform(self._found)  # of a copy

    def _found(self, node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or node.meta.get("of"):
            return node
        engine = self.reader.engine
        parts = [engine.name(one.name, bool(one.args.get("quoted"))) for one in node.parts]
        if isinstance(node.this, exp.Star):
            self.reader.refuse(f"{_sql(node, engine)} in an expression", "name each column")
        for leaf in self.leaves:
            if len(parts) > 1 and leaf.name == parts[0] and parts[1] in dict(leaf.columns):
                return self._inner(_column(leaf.name, parts[1]), node, 2)
        for leaf in self.leaves:
            if parts[0] in dict(leaf.columns):
                found = _column(leaf.name, parts[0])
                if (self.outputs or {}).get(parts[0], found) != found:
                    self.reader.refuse(
                        f"{_sql(node, engine)}: a column of {leaf.name} and another output column",
                        f"name the column {leaf.name}.{_sql(node, engine)}, or give the output another name",
                    )
                if len(parts) > 1 and any(parts[0] == one.name for one in self.leaves):
                    self.reader.refuse(
                        f"{_sql(node, engine)}: a field of a column, until the table of that name in FROM has "
                        "such a column",
                        "give the table another name",
                    )
                self._require_settled(parts[0], leaf)
                return self._inner(_column(leaf.name, parts[0]), node, 1)
        if len(parts) == 1 and self.outputs and parts[0] in self.outputs:
            if any(leaf.grows for leaf in self.leaves):
                self.reader.refuse(
                    f"{_sql(node, engine)}: an output column, until a table in FROM gains a column of that name",
                    "repeat its expression there; GROUP BY, DISTINCT ON and ORDER BY also take its number",
                )
            return self.outputs[parts[0]].copy()
        if len(parts) > 2:
            hint = f"give the table a name, and use that: FROM … AS {parts[-2]}"
        else:
            hint = "name a column of a table in FROM; for another output column, repeat its expression"
        self.reader.refuse(f"{_sql(node, engine)}: no table in FROM has that column", hint)
        return None

    def _require_settled(self, name: str, leaf: Leaf) -> None:
        """Raises where a column that another table gains could be meant as well."""
        quoted = self.reader.engine.quoted(name)
        if not all(quoted in one.using for one in self.leaves[1:]):
            self.reader.refuse(
                f"{name}: once another table in FROM gains a column of that name, it can be either",
                f"say whose it is: {leaf.name}.{name}",
            )

    def _inner(self, column: exp.Expr, node: exp.Column, used: int) -> exp.Expr:
        """A field within a column of a nested type stays behind it."""
        for part in node.parts[used:]:
            column = exp.Dot(this=column, expression=part.copy())
        return column


def _is_star(node: exp.Expr) -> bool:
    return isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))


def _column(leaf: str, name: str) -> exp.Column:
    made = exp.Column(this=exp.Identifier(this=name, quoted=True), table=exp.Identifier(this=leaf, quoted=True))
    made.meta["of"] = leaf
    return made


def undetermined(select: Select, known: Iterable[tuple[str, str]]) -> Leaf | None:
    """A leaf of which two rows can be beside the same values of these columns (leaf, column); None: of none.

    An equality in a join determines nothing here: of other types, several values can equal one (1 = '1' = '01').
    """
    have = set(known)
    return next((leaf for leaf in select.leaves if not _determined(leaf, have)), None)


def _determined(leaf: Leaf, known: set[tuple[str, str]]) -> bool:
    """Whether no two rows of the leaf have the same values of these columns (leaf, column)."""
    have = {name for of, name in known if of == leaf.name}
    if isinstance(leaf.source, Base):
        # the n-th column by its name in this SELECT, which a list of columns after the alias can change
        places = {name: at for at, name in enumerate(leaf.source.columns)}
        return leaf.source.unique and all(leaf.columns[places[name]][0] in have for name in leaf.source.key)
    if isinstance(leaf.source, Select):
        return one_per(
            leaf.source, [item.tree for at, item in enumerate(leaf.source.items) if leaf.columns[at][0] in have]
        )
    return False


def one_per(select: Select, known: Sequence[exp.Expr]) -> bool:
    """Whether no two rows of it have the same values of these expressions."""
    if select.one_row:
        return True
    for parts in (select.groups, select.once_per or None, select.first):
        if parts is not None and all(one in known for one in parts):
            return True
    if select.distinct and all(item.tree in known for item in select.items):
        return True
    columns = {(one.table, one.name) for one in known if isinstance(one, exp.Column)}
    return select.plain and undetermined(select, columns) is None


_CALLED = {
    "logical_and": "bool_and",
    "logical_or": "bool_or",
    "bitwise_and_agg": "bit_and",
    "bitwise_or_agg": "bit_or",
    "bitwise_xor_agg": "bit_xor",
    "variance_pop": "var_pop",
}
"""The parser's names of functions that SQL calls otherwise."""


def function_of(node: exp.Expr) -> str:
    """The name of a function, as far as the parser tells it."""
    if isinstance(node, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls)):
        return function_of(node.this)
    if isinstance(node, exp.Anonymous):
        return node.name.lower()
    if isinstance(node, exp.Func):
        name = node.sql_name().lower()
        return _CALLED.get(name, name)
    return node.key.lower()


def _aggregates(tree: exp.Expr) -> list[exp.Expr]:
    """The aggregates in it that are not a window's function."""
    return [
        one
        for one in tree.find_all(exp.AggFunc)
        if not isinstance(one.parent, exp.Window)
        and not (isinstance(one.parent, exp.Filter) and isinstance(one.parent.parent, exp.Window))
    ]


def _first(qualify: exp.Expr | None, made: Select) -> tuple[exp.Expr, ...] | None:
    """The partition of which QUALIFY keeps one row."""
    if qualify is None or made.leaves == ():
        return None
    test = qualify.this
    if (
        isinstance(test, exp.EQ)
        and isinstance(test.left, exp.Window)
        and function_of(test.left.this) == "row_number"
        and isinstance(test.right, exp.Literal)
        and test.right.name == "1"
    ):
        return tuple(test.left.args.get("partition_by") or ())
    return None


def _sql(node: exp.Expr, engine: Engine) -> str:
    """The expression for a message."""
    said = node.sql(dialect=engine.dialect, comments=False)
    return said if len(said) <= 60 else said[:57] + "…"
