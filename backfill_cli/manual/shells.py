"""Completions of bash, zsh and fish: commands, options and fixed values at once, names from the catalog by a call.

What follows an option or a command is known by how the help calls it: a JOB is asked for, a FILE is the shell's.
"""

import shlex
from collections.abc import Iterator, Sequence

from backfill_cli.view.help import Page, Row

ASKED = ("JOB", "ANSWER")
"""Values that `backfill` itself knows: it is called for them, as typer's own completion calls it."""

FILES = ("FILE", "CONFIG", "PLACE")

_BASH = """\
# bash completion for backfill
{tables}
_backfill() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} word verb= option= what= options= i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${{COMP_WORDS[i]}}
{step}
    done
    [[ $cur == = ]] && cur=
    _backfill_value "$verb$option"
    if [[ -z $option && $cur == -* ]]; then
        _backfill_options "$verb"
        what=$options
    fi
    case $what in
        FILE) compopt -o default 2>/dev/null ;;
        ASK)
            local IFS=$'\\n'
            COMPREPLY=($(env _BACKFILL_COMPLETE=complete_bash COMP_WORDS="${{COMP_WORDS[*]}}" \\
                COMP_CWORD="$COMP_CWORD" "$1" 2>/dev/null))
            ;;
        *) COMPREPLY=($(compgen -W "$what" -- "$cur")) ;;
    esac
}}

complete -F _backfill backfill
"""

_ZSH = """\
#compdef backfill
{tables}
_backfill() {{
    local word verb= option= what= options= i
    local -a found
    for ((i = 2; i < CURRENT; i++)); do
        word=${{words[i]}}
{step}
    done
    if [[ -z $option && $PREFIX == -*=* ]]; then
        option=" ${{PREFIX%%=*}}"
        compset -P '*='
    fi
    _backfill_value "$verb$option"
    if [[ -z $option && $PREFIX == -* ]]; then
        _backfill_options "$verb"
        what=$options
    fi
    case $what in
        FILE) _files ;;
        ASK)
            found=(${{(f)"$(env _BACKFILL_COMPLETE=complete_bash COMP_WORDS="${{(j: :)words[1,CURRENT]}}" \\
                COMP_CWORD=$((CURRENT - 1)) ${{words[1]}} 2>/dev/null)"}})
            compadd -a found
            ;;
        *)
            found=(${{=what}})
            compadd -a found
            ;;
    esac
}}

_backfill "$@"
"""

_STEP = """\
        if [[ -n $option ]]; then
            [[ $word == = ]] || option=
        elif [[ $word == -* ]]; then
            [[ $word != *=* ]] && _backfill_value "$verb $word" && option=" $word"
        elif [[ -z $verb || $verb == help || $verb == config ]]; then
            verb="${verb:+$verb }$word"
        fi"""
"""What both do with each word before the one being typed: keep the command, and an option that lacks its value."""


def bash(pages: Sequence[Page]) -> str:
    """For bash 3.2 and newer; with or without the package bash-completion."""
    return _BASH.format(tables=_tables(pages), step=_STEP)


def zsh(pages: Sequence[Page]) -> str:
    return _ZSH.format(tables=_tables(pages), step=_STEP)


def fish(pages: Sequence[Page]) -> str:
    return "\n".join(["# fish completion for backfill", *_fish(pages)]) + "\n"


def _tables(pages: Sequence[Page]) -> str:
    """Two functions that both shells read: what follows a command and an option, and a command's options."""
    values, options = [], []
    for one in pages:
        path = one.path.partition(" ")[2]
        values.append((path, _follows(one)))
        options.append((path, " ".join(name for row in _options(one) for name in row.names)))
        values += [(f"{path} {name}", _kind(row)) for row in _options(one) if row.value for name in row.names]
    values.append(("help", _follows(pages[0])))
    values.append(("help config", _follows(next(one for one in pages if one.path == "backfill config"))))
    return (
        "\n_backfill_value() {\n    case $1 in\n"
        + "".join(f"        {shlex.quote(key)}) what={shlex.quote(said)} ;;\n" for key, said in values)
        + "        *) return 1 ;;\n    esac\n}\n"
        + "\n_backfill_options() {\n    case $1 in\n"
        + "".join(f"        {shlex.quote(key)}) options={shlex.quote(said)} ;;\n" for key, said in options)
        + "    esac\n}\n"
    )


def _options(of: Page) -> Iterator[Row]:
    return (row for rows in of.options.values() for row in rows if row.names[0].startswith("-"))


def _follows(of: Page) -> str:
    """After the command itself: its commands, or its argument."""
    names = [row.names[0] for rows in of.commands.values() for row in rows]
    if names:
        return " ".join(names if of.path != "backfill" else [*names, "help"])
    arguments = [row for rows in of.options.values() for row in rows if not row.names[0].startswith("-")]
    return _kind(Row((), "", arguments[0].names[0])) if arguments else ""


def _kind(row: Row) -> str:
    """FILE, ASK, the values themselves, or nothing that could be listed."""
    if row.choices:
        return " ".join(row.choices)
    return "ASK" if row.value in ASKED else "FILE" if row.value in FILES else ""


def _fish(pages: Sequence[Page]) -> Iterator[str]:
    yield from (
        "function __backfill_ask",
        "    set -l words (commandline -opc) (commandline -ct)",
        '    env _BACKFILL_COMPLETE=complete_bash COMP_WORDS="$words" COMP_CWORD=(math (count $words) - 1) \\',
        "        $words[1] 2>/dev/null",
        "end",
        "complete -c backfill -f",
    )
    for one in pages:
        path = one.path.partition(" ")[2].split()
        where = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in path) or "__fish_use_subcommand"
        when = f"complete -c backfill -n {shlex.quote(where)}"
        for row in (row for rows in one.commands.values() for row in rows):
            first = f"{when[:-1]}; and not __fish_seen_subcommand_from {row.names[0]}'" if path else when
            yield f"{first} -a {row.names[0]} -d {_quoted(row.said)}"
        if not one.commands and (argument := _fish_value(_follows(one))):
            yield f"{when} {argument}"
        for row in _options(one):
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in row.names)
            value = f" -r {_fish_value(_kind(row)) or '-f'}" if row.value else ""
            yield f"{when} {names}{value} -d {_quoted(row.said)}"
    names = _follows(pages[0])
    yield f"complete -c backfill -n __fish_use_subcommand -a help -d {_quoted('Show the help of a command')}"
    yield f"complete -c backfill -n '__fish_seen_subcommand_from help' -a {_quoted(names)}"


def _fish_value(kind: str) -> str:
    return {"": "", "FILE": "-F", "ASK": "-f -a '(__backfill_ask)'"}.get(kind, f"-f -a {_quoted(kind)}")


def _quoted(text: str) -> str:
    """In single quotes, in which fish reads a backslash."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
