"""How a help page is laid out: usage, what the command does, examples, arguments, options in groups.

typer cuts summaries at the width of the terminal, names Python types, and shows thirty options in one list. Its
classes of commands are extended here; whoever registers a command with `Application` gets them.
"""

import inspect
import shutil
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import EnumType
from functools import wraps
from inspect import Parameter, Signature, signature
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
CLUSTER, PROMETHEUS, OF_FILE = "Cluster options", "Prometheus options", "Options for a file"
PANELS = (BALANCERS, EXPLAIN, RUN, OTHER, OF_FILE, CLUSTER, PROMETHEUS)
GLOBAL = "`--debug`, with any command, prints the traceback of an error."

EXAMPLES: Mapping[str, Sequence[tuple[str, str]]] = {
    "": (
        ("Check that the cluster has what the balancers need", "doctor"),
        ("List the pods that would be rotated, in every namespace", "rotation plan -A"),
        ("Explain a reason that a plan, an event or a status shows", "explain NoHotPods"),
    ),
    "agent": (("Preview what the agent would do on a node", "agent --node worker-1 --mode Preview"),),
    "completion": (
        ("Load completion into the current bash", "source <(equipoise completion bash)"),
        ("Load completion into every zsh", "completion zsh > ~/.zfunc/_equipoise"),
        ("Load completion into every fish", "completion fish > ~/.config/fish/completions/equipoise.fish"),
    ),
    "config": (("Print every setting and where its value comes from", "config --set lease.name=blue"),),
    "crds": (("Install or update the definitions", "crds apply"),),
    "crds apply": (
        ("Install or update every definition", "crds apply"),
        ("Ask the server whether it would accept one", "crds apply rotationpolicy --dry-run"),
    ),
    "crds print": (("Apply the definitions with kubectl", "crds print | kubectl apply --server-side -f -"),),
    "dashboard": (
        ("Show the journal of this user's commands", "dashboard"),
        ("Show another journal on port 9000", "dashboard --journal shop.db --port 9000"),
    ),
    "demo": (
        ("Watch the balancers until Ctrl-C", "demo"),
        ("Run one simulated day and print the result", "demo --once"),
    ),
    "doctor": (
        ("Check the cluster of the current context", "doctor"),
        ("Check one namespace, and the Redis of the pools", "doctor -n shop --redis redis://redis:6379"),
    ),
    "explain": (
        ("Explain one reason", "explain NoHotPods"),
        ("List every reason", "explain"),
    ),
    "forecast": (
        ("Forecast one day", "forecast --from usage.csv --horizon 1d"),
        ("Measure the error on the last day of the file", "forecast --from usage.csv --backtest 1d"),
    ),
    "journal": (("List the newest records", "journal list"),),
    "journal explain": (("Explain one record by the first letters of its id", "journal explain 01j9"),),
    "journal list": (
        ("List the rotations of the last day", "journal list --balancer rotation --since 1d"),
        ("Find every record about one workload", "journal list --no-headers | grep shop/web"),
    ),
    "journal replay": (("Decide every record again with this version", "journal replay --all"),),
    "journal show": (("Print one record with its inputs", "journal show 01j9 -o json"),),
    "operator": (("Run two balancers, for policies in namespace shop", "operator --balancers rotation,pools -n shop"),),
    "pause": (
        ("Stop every action in the cluster", "pause --reason 'incident 42'"),
        ("Stop every action in one namespace", "pause -n shop"),
    ),
    "pools": (("Show the tiers", "pools status"),),
    "pools allocate": (("Allocate a pod of tier gold to a call", "pools allocate call-7 --tier gold"),),
    "pools config": (("Change two targets", "pools config set gold=4,basic=2"),),
    "pools config get": (
        ("Show the tiers", "pools config get"),
        ("Copy the tiers to another Redis", "pools config get | equipoise pools config set --from - --redis URL"),
    ),
    "pools config set": (
        ("Change two targets", "pools config set gold=4,basic=2"),
        ("Add a shared tier of 3 pods with 5 calls each", "pools config set bulk=shared:3:5"),
        ("Replace the tiers with those of a file", "pools config set --from tiers.yaml"),
    ),
    "pools drain": (("Stop new calls to a pod", "pools drain voice-agent-3"),),
    "pools fsck": (("Check the pools, and repair what can be repaired", "pools fsck --repair"),),
    "pools heartbeat": (("Renew the lease of a call", "pools heartbeat call-7"),),
    "pools plan": (("Show which pods would move", "pools plan --redis redis://redis:6379"),),
    "pools plan-scale-down": (("Show which pods a StatefulSet of 8 replicas loses", "pools plan-scale-down 8"),),
    "pools rebalance": (
        ("Move idle pods", "pools rebalance"),
        ("Also mark busy pods, which then move at the end of their calls", "pools rebalance --mark-busy"),
    ),
    "pools register": (("Add a pod to the pools", "pools register voice-agent-3"),),
    "pools release": (("End a call", "pools release call-7"),),
    "pools serve": (("Answer on port 8081 of this machine", "pools serve --redis redis://redis:6379"),),
    "pools status": (("Show the tiers of a Redis", "pools status --redis redis://redis:6379"),),
    "pools undrain": (("Allow new calls to a pod again", "pools undrain voice-agent-3"),),
    "pools unregister": (("Remove a pod that is gone", "pools unregister voice-agent-3"),),
    "pools watch": (("Print the tiers at every change", "pools watch --interval 5s"),),
    "proportional": (("Show the values for the current cluster", "proportional plan"),),
    "proportional apply": (
        ("Set the values of one policy of the cluster", "proportional apply kube-dns -n kube-system"),
        ("Show what would be set", "proportional apply --dry-run -A"),
    ),
    "proportional plan": (
        ("Show the values for every policy in the cluster", "proportional plan -A"),
        (
            "Show the values for a cluster of 18 cores, without a cluster",
            "proportional plan --policy policy.yaml --input cores=18",
        ),
    ),
    "proportional simulate": (("Compare the ways of smoothing on a policy", "proportional simulate --policy policy.yaml"),),
    "qos": (("Show the plan for a node", "qos plan --node worker-1"),),
    "qos plan": (
        ("Show the plan for a live node", "qos plan --node worker-1"),
        ("Show the plan for a node in a file", "qos plan --from node.yaml"),
    ),
    "recommendation": (("Show advice for every workload", "recommendation plan -A"),),
    "recommendation apply": (
        ("Show which HPAs would be created or changed", "recommendation apply --dry-run -n shop"),
        ("Create or change the HPA of one workload", "recommendation apply web -n shop"),
    ),
    "recommendation plan": (
        ("Show advice for every workload of a namespace", "recommendation plan -n shop"),
        (
            "Show advice for one workload from a file",
            "recommendation plan web --from usage.csv --request 500m --replicas 12",
        ),
        ("Write the advised HPAs as manifests", "recommendation plan -n shop -o hpa > hpas.yaml"),
    ),
    "recommendation simulate": (
        (
            "Replay a week with the advised HPA",
            "recommendation simulate --from usage.csv --request 500m --replicas 12",
        ),
    ),
    "resume": (("End the pause of the whole cluster", "resume"), ("End the pause of one namespace", "resume -n shop")),
    "retire": (("Remove the agents before Equipoise is uninstalled", "retire -n equipoise-system"),),
    "rotation": (("Show which pods would be rotated", "rotation plan -A"),),
    "rotation apply": (
        ("Rotate the hot pods of one workload", "rotation apply web -n shop"),
        ("Ask the server what would be evicted now", "rotation apply web -n shop --dry-run"),
    ),
    "rotation plan": (
        ("Show the plan for every workload with an HPA", "rotation plan -A"),
        ("Show the plan for one workload, as JSON", "rotation plan web -n shop -o json"),
        ("Show the plan for a workload in a file", "rotation plan --from pods.yaml --set topK=3"),
    ),
    "rotation simulate": (("Compare the ways of rotating for one cause", "rotation simulate --cause noisy-node"),),
    "schema": (("List the schemas", "schema"), ("Print the schema of a plan", "schema plan")),
    "validate": (("Check manifests before they are applied", "validate policies/*.yaml"),),
    "version": (("Print the version as JSON", "version -o json"),),
}
"""What to type for a common need, by command; each begins with the words behind `equipoise`."""


class Command(TyperCommand):
    """A command with a help page of ours, which also understands `-o=json`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Parse; an unknown option names the closest one."""
        with_value = {name for each in self.params for name in each.opts if not getattr(each, "is_flag", True)}
        return _parsed(super().parse_args, ctx, list(_without_equals(args, with_value)), self.get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the page."""
        formatter.write("\n".join(_page(self, ctx)))


class CommandGroup(TyperGroup):
    """A group of commands with a help page of ours."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Parse; an unknown option names the closest one."""
        return _parsed(super().parse_args, ctx, args, self.get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the page."""
        formatter.write("\n".join(_page(self, ctx)))


class Application(typer.Typer):
    """A group of commands, which prints its help page where no command is given."""

    def __init__(self, text: str, **more: Any) -> None:
        """Take the summary; `more` is typer's."""
        # Without rich, whose boxes would add a third of a second to every --help.
        super().__init__(cls=CommandGroup, help=text, no_args_is_help=True, rich_markup_mode=None, **more)

    def command(self, name: str | None = None, **more: Any) -> Callable[[Any], Any]:
        """Register a command; one that prints a table also gets `--no-headers`."""
        register = super().command(name, **{"cls": Command, **more})

        def add(function: Any) -> Any:
            register(_with_no_headers(function))
            return function

        return add


NoHeaders = Annotated[
    bool, typer.Option("--no-headers", help="Print only the rows of tables; other lines go to standard error.")
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
    yield from ("", "Examples:")
    for number, (need, line) in enumerate(EXAMPLES.get(" ".join(path), ())):
        yield from [""] * bool(number)
        yield from _wrapped(need, width, "  # ", "  # ")
        yield f"  {example_line(line, root)}"
    yield from _section("Arguments", [(_bare(each), _meaning(each, ctx)) for each in arguments], width)
    for heading, commands in _by_panel(getattr(command, "commands", {}).values(), OTHER if not path else "Commands"):
        yield from _section(heading, [(each.name, summary_of(each)) for each in commands], width)
    for heading, each_options in _by_panel(options, "Options"):
        yield from _section(heading, [(_option_names(each), _meaning(each, ctx)) for each in each_options], width)
    if hasattr(command, "commands"):
        called = " ".join((root, *path))
        yield ""
        yield from _wrapped(f"`{called} COMMAND --help` describes a command.{'' if path else f' {GLOBAL}'}", width)
    yield ""


def example_line(line: str, root: str = "equipoise") -> str:
    """Return an example as it is typed, where the program is called `root`."""
    whole = line if line.startswith("source ") else f"equipoise {line}"
    return whole.replace("equipoise ", f"{root} ")


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
    """Yield the headings in order, with the commands or options under each; those without one are under `rest`."""
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
        text, width, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    ) or [first.rstrip()]
