"""How a help page is laid out: usage, what the command does, examples, arguments, options in groups.

typer cuts summaries at the width of the terminal, names Python types, and shows thirty options in one list.
Its classes of commands are extended here; whoever registers a command with `Application` gets them. Options
that several commands share are fields of dataclasses, which typer does not read either: `expanded` does.
"""

import inspect
import shutil
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import EnumType
from functools import wraps
from inspect import Parameter, Signature, signature
from types import NoneType, UnionType
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperCommand, TyperGroup

from equipoise.core.errors import did_you_mean

COLUMNS_MIN, COLUMNS_MAX = 50, 120
NAMES_COLUMNS_MAX = 30
"""A longer option has its meaning on the next line."""
COUNTLESS = 10**6
"""A bound from here on means nothing to a reader."""

BALANCERS, EXPLAIN, RUN, OTHER = (
    "Balancers",
    "Decisions and their reasons",
    "Installation and operation",
    "Other commands",
)
CLUSTER, PROMETHEUS, FILE_OPTIONS = "Cluster options", "Prometheus options", "Options for a file"
PANELS = (BALANCERS, EXPLAIN, RUN, OTHER, FILE_OPTIONS, CLUSTER, PROMETHEUS)
GLOBAL = "`--debug`, with any command, prints the traceback of an error."


class Command(TyperCommand):
    """A command with a help page of ours, which also understands `-o=json`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Parse; an unknown option names the closest one."""
        with_value = {
            name for each in self.params for name in each.opts if not getattr(each, "is_flag", True)
        }
        return _parsed(super().parse_args, ctx, list(_without_equals(args, with_value)), self.get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the page."""
        formatter.write("\n".join(_page(self, ctx)))


class CommandGroup(TyperGroup):
    """A group of commands with a help page of ours."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse; an unknown option names the closest one.

        Where the first word is a command, there is no option to parse: typer would load pydantic for it,
        which takes as long as everything else that a help page needs.
        """
        if not args or args[0] not in self.commands:
            return _parsed(super().parse_args, ctx, args, self.get_params(ctx))
        ctx.params = {each.name: each.default for each in self.params}
        ctx._protected_args, ctx.args = args[:1], args[1:]  # noqa: SLF001 - as TyperGroup.parse_args does
        return args[1:]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the page."""
        formatter.write("\n".join(_page(self, ctx)))


class Application(typer.Typer):
    """A group of commands, which prints its help page where no command is given."""

    def __init__(self, text: str, **more: Any) -> None:
        """Take the summary; `more` is typer's."""
        # Without rich, whose boxes would add a third of a second to every --help.
        super().__init__(cls=CommandGroup, help=text, no_args_is_help=True, rich_markup_mode=None, **more)

    def command(
        self, name: str | None = None, *, has_table: bool = True, **more: Any
    ) -> Callable[[Any], Any]:
        """Register a command; one that can print a table also gets `--no-headers`."""
        register = super().command(name, **{"cls": Command, **more})

        def add(function: Any) -> Any:
            register(_with_no_headers(function) if has_table else function)
            return function

        return add


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Make typer read the fields of a command's dataclasses as options, in the order of the signature."""
    declared = signature(command).parameters
    flat = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for parameter in declared.values()
        for name, kind, default in _leaves(parameter.name, parameter.annotation, parameter.default)
    ]
    names = [parameter.name for parameter in flat]
    assert len(set(names)) == len(names), f"{command.__name__}: two options have one name"

    @wraps(command)
    def run(**values: Any) -> None:
        command(**{name: _built(name, each.annotation, values) for name, each in declared.items()})

    run.__signature__ = Signature(flat)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return run


def _leaves(name: str, kind: Any, default: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, type and default of a parameter, or of each field if it is a dataclass."""
    if not is_dataclass(kind):
        yield name, kind, Parameter.empty if default is MISSING else default
        return
    for field in fields(kind):
        yield from _leaves(field.name, field.type, field.default)


def _built(name: str, kind: Any, values: Mapping[str, Any]) -> Any:
    if not is_dataclass(kind):
        return values[name]
    assert isinstance(kind, type), f"{name}: a dataclass, not one of its instances"
    return kind(**{field.name: _built(field.name, field.type, values) for field in fields(kind)})


NoHeaders = Annotated[
    bool,
    typer.Option("--no-headers", help="Print only the rows of tables; other lines go to standard error."),
]


def _with_no_headers(function: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the option `--no-headers`, if it can print a table."""
    declared = signature(function)
    output = declared.parameters.get("output")
    if output is None or "table" not in _choices(output.annotation):
        return function

    @wraps(function)
    def run(*, no_headers: bool, **values: Any) -> None:
        if no_headers:
            from equipoise.runtime.console import Console

            Console.is_rows_only = True
        function(**values)

    added = Parameter("no_headers", Parameter.KEYWORD_ONLY, default=False, annotation=NoHeaders)
    listed = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in declared.parameters.values()]
    listed.insert([each.name for each in listed].index("output") + 1, added)
    run.__signature__ = Signature(listed)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in listed}
    return run


def _choices(annotation: Any) -> list[str]:
    """Return the values that an annotated Literal or enumeration allows."""
    kind = get_args(annotation)[0] if hasattr(annotation, "__metadata__") else annotation
    if isinstance(kind, UnionType):
        kind = next(each for each in get_args(kind) if each is not NoneType)
    values = list(kind) if isinstance(kind, EnumType) else get_args(kind)
    return [str(value) for value in values]


def _without_equals(args: Iterable[str], with_value: Collection[str]) -> Iterator[str]:
    """Yield the words; `-o=json` becomes `-o json`, since the parser would take `=json` as the value."""
    for arg in args:
        name, is_equal, value = arg.partition("=")
        if is_equal and name in with_value and not name.startswith("--"):
            yield from (name, value)
        else:
            yield arg


def _parsed(parse: Any, ctx: typer.Context, args: list[str], params: Iterable[Any]) -> list[str]:
    try:
        return list(parse(ctx, args))
    except typer.TyperException as error:
        name = getattr(error, "option_name", "")
        if not hasattr(error, "possibilities"):
            raise
        known = [option for each in params for option in each.opts if option.startswith("--")]
        error.possibilities = None
        question = did_you_mean(name, known)
        error.message += f".{question}" if question else ""
        raise


def examples() -> dict[str, list[tuple[str, str]]]:
    """Return what to type for common needs, by command: the need, and the words behind `equipoise`."""
    import tomllib
    from importlib.resources import files

    read = tomllib.loads((files("equipoise.cli") / "examples.toml").read_text(encoding="utf-8"))
    return {command: [(each["need"], each["line"]) for each in some] for command, some in read.items()}


def example_line(line: str, root: str = "equipoise") -> str:
    """Return an example as it is typed, where the program is called `root`."""
    whole = line if line.startswith("source ") else f"equipoise {line}"
    return whole.replace("equipoise ", f"{root} ")


def _page(command: Any, ctx: Any) -> Iterator[str]:
    """Yield the lines of a help page."""
    width = max(COLUMNS_MIN, min(shutil.get_terminal_size().columns, COLUMNS_MAX))
    root, *path = _names(ctx)
    shown = [each for each in command.get_params(ctx) if not getattr(each, "hidden", False)]
    arguments = [each for each in shown if each.param_type_name == "argument"]
    options = [each for each in shown if each.param_type_name == "option"]
    yield from _wrapped(" ".join(_usage(command, ctx, arguments, options)), width, "Usage: ", " " * 7)
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield ""
        yield from _wrapped(" ".join(paragraph.split()), width)
    for number, (need, line) in enumerate(examples().get(" ".join(path), ())):
        yield from ("",) if number else ("", "Examples:")
        yield from _wrapped(need, width, "  # ", "  # ")
        yield f"  {example_line(line, root)}"
    yield from _section("Arguments", [(_bare(each), _meaning(each, ctx)) for each in arguments], width)
    for heading, commands in _by_panel(
        getattr(command, "commands", {}).values(), OTHER if not path else "Commands"
    ):
        yield from _section(heading, [(each.name, summary_of(each)) for each in commands], width)
    for heading, each_options in _by_panel(options, "Options"):
        yield from _section(
            heading, [(_option_names(each), _meaning(each, ctx)) for each in each_options], width
        )
    if hasattr(command, "commands"):
        called = " ".join((root, *path))
        yield ""
        yield from _wrapped(
            f"`{called} COMMAND --help` describes a command.{'' if path else f' {GLOBAL}'}", width
        )
    yield ""


def _names(ctx: Any) -> list[str]:
    """Return how the program was called, and the names of the commands below it."""
    return [*_names(ctx.parent), ctx.info_name] if ctx.parent is not None else [ctx.info_name]


def _usage(command: Any, ctx: Any, arguments: Sequence[Any], options: Sequence[Any]) -> Iterator[str]:
    yield ctx.command_path
    if hasattr(command, "commands"):
        yield "COMMAND"
    for each in options:
        if each.required:
            yield f"{each.opts[-1]} {_value(each)}"
    for each in arguments:
        name = f"{_bare(each)}{'...' if each.nargs != 1 else ''}"
        yield name if each.required else f"[{name}]"
    yield "[OPTIONS]"


def _bare(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper()).strip("[]").removesuffix("...")


def _option_names(option: Any) -> str:
    short = [name for name in option.opts if not name.startswith("--")]
    long = [name for name in option.opts if name.startswith("--")]
    indent = "" if short else "    "
    value = "" if option.is_flag or option.count else f" {_value(option)}"
    return f"{indent}{', '.join([*short, *long[:1]])}{value}"


def _value(option: Any) -> str:
    """Return what an option takes: its choices, or the word for its value."""
    choices = option.type_descriptor.choices
    if choices and option.metavar is None:
        return "|".join(str(getattr(choice, "value", choice)) for choice in choices)
    return str(option.metavar or option.name.upper())


def _meaning(param: Any, ctx: Any) -> str:
    """Return what a parameter means, with its bounds and its default."""
    low, high = getattr(param, "min", None), getattr(param, "max", None)
    notes = []
    if low is not None and high is not None and high < COUNTLESS:
        notes.append(f"from {low:g} to {high:g}")
    elif low:
        notes.append(f"at least {low:g}")
    default = param.get_default(ctx, call=False)
    default = getattr(default, "value", default)
    if param.show_default and default not in (None, False, True, "", (), []):
        notes.append(f"default {default}")
    text = f" ({', '.join(notes)})" if notes else ""
    return f"{param.help or ''}{text}"


def summary_of(command: Any) -> str:
    """Return the first sentence about a command, without its full stop."""
    first = " ".join(inspect.cleandoc(command.help or "").split("\n\n")[0].split())
    return first.partition(". ")[0].removesuffix(".")


def _by_panel(items: Iterable[Any], rest: str) -> Iterator[tuple[str, list[Any]]]:
    """Yield the headings in order, with what is under each; whatever has none is under `rest`."""
    found: dict[str, list[Any]] = {heading: [] for heading in ("Options", *PANELS)}
    for item in items:
        if not item.hidden:
            found.setdefault(item.rich_help_panel or rest, []).append(item)
    yield from ((heading, listed) for heading, listed in found.items() if listed)


def _section(heading: str, rows: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    if not rows:
        return
    yield from ("", f"{heading}:")
    column = min(NAMES_COLUMNS_MAX, max(len(name) for name, _ in rows)) + 2
    blank = " " * (column + 2)
    for name, meaning in rows:
        if len(name) > column - 2:
            yield f"  {name}"
            yield from _wrapped(meaning, width, blank, blank)
        else:
            yield from _wrapped(meaning, width, f"  {name}".ljust(column + 2), blank)


def _wrapped(text: str, width: int, first: str = "", others: str = "") -> list[str]:
    """Return lines wrapped between words, never inside one."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [first.rstrip()]
