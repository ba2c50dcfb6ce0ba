"""What `plan` tells of a derived table: by which columns changes reach its rows, and what to know of it."""

from collections.abc import Iterator, Mapping

from sqlglot import exp

from backfill_cli.derived.contributions import Contributions
from backfill_cli.derived.query import All, Select, bases_of
from backfill_cli.derived.reading import FLOATS, ORDERED
from backfill_cli.derived.rows import Maintained
from backfill_cli.model.derived import Base
from backfill_cli.model.reports import ReadByDerived


def reads_of(one: Maintained) -> tuple[ReadByDerived, ...]:
    """Each table by each name that the SELECT gives it, in order."""
    if one.refreshed:
        return tuple(ReadByDerived(base.name, base.names[0], ()) for base in bases_of(one.query))
    found = (told for branch in one.query.branches for told in _reads(branch, _columns_of_keys(one, branch)))
    return tuple(dict.fromkeys(found))


def found_by(one: Maintained) -> tuple[str, ...]:
    """Columns of its key by which its rows are computed again; none where all are."""
    if one.refreshed:
        return ()
    return tuple(name for name in one.derived.key if one.engine.name(name, True) in one.pushed)


def grouped_by(one: Maintained) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Tables, and the columns of each by which rows are computed together; none where an expression is between.

    Before each, the table of which a changed row is in one of these groups: itself, and those that have its key.
    """
    for branch in one.query.branches:
        trees = [branch.items[one.columns.index(name)].tree for name in one.pushed]
        sources = {leaf.name: leaf for leaf in branch.leaves}
        of = {tree.table for tree in trees if isinstance(tree, exp.Column)}
        if branch.plain or len(of) != 1 or not all(isinstance(tree, exp.Column) for tree in trees):
            continue
        leaf = sources[of.pop()]
        if isinstance(leaf.source, Base):
            names = dict(zip((name for name, _ in leaf.columns), leaf.source.columns, strict=True))
            columns = tuple(names[tree.name] for tree in trees)
            yield leaf.source.name, leaf.source.name, columns
            for changed in _having_key(branch, leaf.name):
                if changed != leaf.source.name:
                    yield changed, leaf.source.name, columns


def _having_key(branch: Select, leaf: str) -> list[str]:
    """The tables of which each row is joined with at most one of this leaf, over others, too: by keys."""
    sources, found = {one.name: one.source for one in branch.leaves}, [leaf]
    pairs = [each for pair in _equal(branch) for each in (pair, pair[::-1])]
    for at in found:  # grows meanwhile
        for (of, _), (to, name) in pairs:
            if to == at and of not in found and _is_key(branch, to, name):
                found.append(of)
    return [source.name for source in map(sources.__getitem__, found[1:]) if isinstance(source, Base)]


def _is_key(branch: Select, leaf: str, name: str) -> bool:
    """Whether the column alone tells the rows of a table apart, which the leaf is."""
    (one,) = [each for each in branch.leaves if each.name == leaf]
    if not isinstance(one.source, Base):
        return False
    column = one.source.columns[[column for column, _ in one.columns].index(name)]
    return one.source.unique and one.source.key == (column,)


def fans_out(one: Maintained) -> Iterator[tuple[str, str, str]]:
    """Tables of which a changed row reaches several rows of another: it, the other, that one's column."""
    for branch in one.query.branches:
        leaves = {leaf.name: leaf for leaf in branch.leaves}
        for pair in _equal(branch):
            for (of, _), (to, name) in (pair, pair[::-1]):
                changed, reached = leaves[of].source, leaves[to].source
                if isinstance(changed, Base) and isinstance(reached, Base) and not _is_key(branch, to, name):
                    places = [column for column, _ in leaves[to].columns]
                    yield changed.name, reached.name, reached.columns[places.index(name)]


def joined_by(one: Maintained) -> Iterator[tuple[str, str]]:
    """Tables, and each column of theirs by which rows are joined."""
    for branch in one.query.branches:
        joined = set(_joined(branch))
        for leaf in branch.leaves:
            if isinstance(leaf.source, Base):
                for (name, _), column in zip(leaf.columns, leaf.source.columns, strict=True):
                    if (leaf.name, name) in joined:
                        yield leaf.source.name, column


def _columns_of_keys(one: Maintained, branch: Select) -> set[tuple[str, str]]:
    items = [branch.items[one.columns.index(name)].tree for name in one.pushed]
    return {(column.table, column.name) for tree in items for column in tree.find_all(exp.Column)}


def _reads(select: Select, wanted: set[tuple[str, str]]) -> Iterator[ReadByDerived]:
    joined = set(_joined(select))
    for leaf in select.leaves:
        if isinstance(leaf.source, Base):
            names = list(zip((name for name, _ in leaf.columns), leaf.source.columns, strict=True))
            by, keys = (
                tuple(written for name, written in names if (leaf.name, name) in of) for of in (joined, wanted)
            )
            yield ReadByDerived(leaf.source.name, leaf.name, by or keys)
        elif isinstance(leaf.source, Select | All):
            for branch in leaf.source.branches:
                trees = [item.tree for item in branch.by]
                yield from _reads(
                    branch, {(one.table, one.name) for tree in trees for one in tree.find_all(exp.Column)}
                )


def _joined(select: Select) -> Iterator[tuple[str, str]]:
    """Columns (leaf, column) that equal one of another leaf."""
    for pair in _equal(select):
        yield from pair


def _equal(select: Select) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Pairs of columns (leaf, column) of two leaves that are to be equal."""
    for condition in (select.condition, *(leaf.condition for leaf in select.leaves)):
        for one in condition.find_all(exp.EQ) if condition is not None else ():
            left, right = one.left, one.right
            if isinstance(left, exp.Column) and isinstance(right, exp.Column) and left.table != right.table:
                yield (left.table, left.name), (right.table, right.name)
    for at, leaf in enumerate(select.leaves):
        for name in leaf.using:
            column = name.strip('"`')
            for other in select.leaves[:at]:
                if column in dict(other.columns) and column in dict(leaf.columns):
                    yield (other.name, column), (leaf.name, column)


def notes_of(one: Maintained, types: Mapping[str, str], added: Contributions | str) -> tuple[str, ...]:
    """types: of its columns, as the database writes them. added: what it is kept by, or why it is not."""
    if one.refreshed:
        return ("each commit that changes a table that it reads runs its whole SELECT and writes what differs",)
    notes = []
    row = "its row is" if not one.pushed else "the groups that a change reaches are"
    if not isinstance(added, str):
        notes.append(
            f"{row} kept by contributions: what the old rows gave is taken away, what the new ones give added"
        )
    elif added or not one.pushed:
        notes.append(f"{row} computed again from all rows" + (f": {added}" if added else ""))
    notes += [
        f"{name}: all rows of this subquery in FROM are computed by each commit whose changes reach it; of a "
        "[[derived]] of its own, only those that they reach"
        for name in one.computed_whole
    ]
    kinds = {name.lower(): kind.upper() for name, kind in types.items()}
    branch = one.query.branches[0]
    drifting = [
        item.name
        for item in branch.items
        if kinds.get(item.name.lower()) in FLOATS
        and any(found.sql_name().lower() in ORDERED for found in item.tree.find_all(exp.Func))
    ]
    if drifting:
        notes.append(
            f"{', '.join(drifting)}: floating-point numbers, whose last digits depend on the order in which rows "
            "are added: verify compares 12 digits; a decimal type is exact"
        )
    return tuple(notes)
