"""`equipoise completion`: what may come next on a command line, for bash, zsh, fish and kubectl.

The scripts of the shells call `equipoise __complete WORDS`, which prints one candidate per line, a tab and
its meaning, and at the end whether file names may follow (the protocol of kubectl's plugins). Names of
namespaces and workloads come from the cluster. A cluster that is absent, slow or refuses gives no names and
no message.
"""

import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from equipoise.cli.help import summary_of

NO_FILES, FILES = 4, 0
"""The directives of kubectl: whether file names may follow."""
CLUSTER_SECONDS_MAX = 1.5
"""How long the names of a cluster are waited for."""
OBJECTS_MAX = 500

BASH = """\
_equipoise() {
    local line name directive candidates=()
    local words=("${COMP_WORDS[@]:1:COMP_CWORD}")
    # Readline splits --option=value into three words.
    local current="${COMP_WORDS[COMP_CWORD]}"
    while IFS= read -r line; do
        case "$line" in
            :*) directive="${line#:}" ;;
            *) candidates+=("${line%%$'\\t'*}") ;;
        esac
    done < <("${COMP_WORDS[0]}" __complete "${words[@]}" 2>/dev/null)
    [[ "$current" == "=" ]] && current=""
    COMPREPLY=()
    for name in "${candidates[@]}"; do
        [[ "$name" == "$current"* ]] && COMPREPLY+=("$name")
    done
    if [[ "$directive" == "0" && ${#COMPREPLY[@]} -eq 0 ]]; then
        compopt -o default 2>/dev/null
    fi
}
complete -F _equipoise equipoise
"""
ZSH = """\
#compdef equipoise
_equipoise() {
    local line directive
    local -a candidates
    while IFS= read -r line; do
        case "$line" in
            :*) directive="${line#:}" ;;
            *) candidates+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}") ;;
        esac
    done < <("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( ${#candidates} )); then
        _describe 'equipoise' candidates
    elif [[ "$directive" == "0" ]]; then
        _files
    fi
}
if [[ "${funcstack[1]}" == "_equipoise" ]]; then
    _equipoise "$@"
else
    compdef _equipoise equipoise
fi
"""
FISH = """\
function __equipoise_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l lines ($words[1] __complete $words[2..-1] "$current" 2>/dev/null)
    if test (count $lines) -gt 1
        printf '%s\\n' $lines[1..-2]
    else if test "$lines[1]" = ":0"
        __fish_complete_path "$current"
    end
end
complete -c equipoise -f -a '(__equipoise_complete)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="bash, zsh or fish.")
    ],
) -> None:
    """Print a script that completes commands, options, namespaces and workloads in a shell."""
    sys.stdout.write(SCRIPTS[shell])


def print_candidates(words: Sequence[str]) -> None:
    """Print the words that may stand in place of the last one, then the directive."""
    from typer.main import get_command

    from equipoise.cli.commands import app

    *before, begun = words or [""]
    line = CommandLine.read(get_command(app), before)
    if begun == "=" and line.option is not None:  # readline's words of --option=
        begun = ""
    shown = {name: meaning for name, meaning in line.candidates(begun) if name.startswith(begun)}
    for name, meaning in shown.items():
        print(f"{name}\t{meaning}" if meaning else name)
    print(f":{FILES if line.takes_files(begun) else NO_FILES}", flush=True)
    if any(thread.name == CLUSTER_THREAD for thread in threading.enumerate()):
        os._exit(0)  # a request to the cluster is still waiting for its answer


@dataclass(slots=True)
class CommandLine:
    """The words before the one to complete: the innermost command, and what is given already."""

    command: Any
    option: Any = None
    """The option whose value comes next, if any."""
    arguments: int = 0
    values: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, root: Any, words: Sequence[str]) -> "CommandLine":
        """Follow the words from the root of all commands."""
        line = cls(root)
        for word in words:
            line._take(word)
        return line

    def _take(self, word: str) -> None:
        if self.option is not None:
            if word != "=":  # readline has it as a word of its own
                self.values[self.option.name] = word
                self.option = None
        elif word.startswith("-"):
            name, is_equal, value = word.partition("=")
            found = self._options().get(name)
            if found is None or found.is_flag:
                self.values |= {} if found is None else {found.name: "true"}
            elif is_equal:
                self.values[found.name] = value
            else:
                self.option = found
        elif self._commands():
            self.command = self._commands().get(word, self.command)
        else:
            self.arguments += 1

    def candidates(self, begun: str) -> Iterator[tuple[str, str]]:
        """Yield what may come next, with its meaning."""
        if self.option is not None:
            yield from self._values(self.option, begun)
        elif begun.startswith("-"):
            yield from self._begun_options(begun)
        elif commands := self._commands():
            for each, command in commands.items():
                if not command.hidden:
                    yield each, summary_of(command)
        elif (argument := self._argument()) is not None:
            yield from self._values(argument, begun)

    def _begun_options(self, begun: str) -> Iterator[tuple[str, str]]:
        name, is_equal, value = begun.partition("=")
        options = self._options()
        if is_equal and name in options:
            yield from ((f"{name}={each}", meaning) for each, meaning in self._values(options[name], value))
            return
        for option, each in options.items():
            if option.startswith("--"):
                yield option, (each.help or "").partition(". ")[0].removesuffix(".")

    def takes_files(self, begun: str) -> bool:
        """Return whether a file name may stand here."""
        if self.option is not None:
            return (self.option.metavar or "") in {"FILE", "PATH", "DIRECTORY"}
        if self._commands() or begun.startswith("-"):
            return False
        argument = self._argument()
        return argument is not None and "FILE" in (argument.metavar or "")

    def _commands(self) -> Mapping[str, Any]:
        return getattr(self.command, "commands", {})

    def _options(self) -> dict[str, Any]:
        return {
            name: each
            for each in self.command.params
            for name in each.opts
            if each.param_type_name == "option"
        }

    def _argument(self) -> Any:
        """Return the argument at this position; None if there are enough."""
        listed = [each for each in self.command.params if each.param_type_name == "argument"]
        if listed and (self.arguments < len(listed) or listed[-1].nargs == -1):
            return listed[min(self.arguments, len(listed) - 1)]
        return None

    def _values(self, param: Any, begun: str) -> Iterator[tuple[str, str]]:
        if choices := param.type_descriptor.choices:
            yield from ((str(getattr(choice, "value", choice)), "") for choice in choices)
        elif param.name in LOCAL:
            yield from LOCAL[param.name]()
        elif param.name in OBJECTS or param.name in {"workloads", "context"}:
            yield from _from_cluster(param.name, self.values, begun)


def _reasons() -> Iterator[tuple[str, str]]:
    from equipoise.core.reason import Code

    yield from ((code.value, "") for code in Code)


def _balancers() -> Iterator[tuple[str, str]]:
    from equipoise.engine.balancer import BALANCERS

    yield from ((name, "") for name in BALANCERS)


def _kinds() -> Iterator[tuple[str, str]]:
    from equipoise.cli.manifests import KINDS

    yield from ((kind.name.lower(), "") for kind in KINDS)


def _schemas() -> Iterator[tuple[str, str]]:
    from equipoise.cli.schemas import SCHEMAS

    yield from ((name, "") for name in sorted(SCHEMAS))


LOCAL = {
    "reason": _reasons,
    "code": _reasons,
    "balancer": _balancers,
    "names": _kinds,
    "schema_name": _schemas,
}
"""Values that are known without a cluster, by the name of the parameter."""
OBJECTS = {
    "namespace": "/api/v1/namespaces",
    "operator_namespace": "/api/v1/namespaces",
    "lease_namespace": "/api/v1/namespaces",
    "prometheus_namespace": "/api/v1/namespaces",
    "node": "/api/v1/nodes",
    "policies": "/apis/scalingpolicy.kope.io/v1alpha1/{0}scalingpolicies",
}
WORKLOADS = {
    "Deployment": "/apis/apps/v1/{0}deployments",
    "StatefulSet": "/apis/apps/v1/{0}statefulsets",
}
CLUSTER_THREAD = "completion from the cluster"


def _from_cluster(what: str, values: Mapping[str, str], begun: str) -> list[tuple[str, str]]:
    """Return names of the cluster, or none if they are not known within `CLUSTER_SECONDS_MAX`."""
    found: list[tuple[str, str]] = []

    def ask() -> None:
        try:
            for name, meaning in _names(what, values, begun):
                found.append((name, meaning))
        except Exception:  # noqa: BLE001, S110 - a completion never reports an error
            pass

    thread = threading.Thread(target=ask, name=CLUSTER_THREAD, daemon=True)
    thread.start()
    thread.join(CLUSTER_SECONDS_MAX)
    return list(found)


def _names(what: str, values: Mapping[str, str], begun: str) -> Iterator[tuple[str, str]]:
    if what == "context":
        yield from ((name, "") for name in _contexts(values.get("kubeconfig")))
        return
    from equipoise.adapters.http import Backoff
    from equipoise.adapters.kubernetes import connect
    from equipoise.adapters.kubernetes.client import Limits

    limits = Limits(CLUSTER_SECONDS_MAX, CLUSTER_SECONDS_MAX, CLUSTER_SECONDS_MAX)
    backoff = Backoff(attempts_max=1, total_max_seconds=CLUSTER_SECONDS_MAX)
    client = connect(values.get("kubeconfig"), values.get("context"), limits=limits, backoff=backoff)
    namespace = values.get("namespace") or client.namespace
    scope = "" if "all_namespaces" in values else f"namespaces/{namespace}/"
    if what in OBJECTS:
        yield from ((name, "") for name in _listed(client, OBJECTS[what].format(scope)))
        return
    asked, is_typed, _ = begun.partition("/")
    for kind, path in WORKLOADS.items():
        if not is_typed or asked.lower() == kind.lower():
            before = f"{asked}/" if is_typed else ""
            yield from ((f"{before}{name}", kind) for name in _listed(client, path.format(scope)))


def _contexts(kubeconfig: str | None) -> list[str]:
    from equipoise.adapters.kubernetes.kubeconfig import read_kubefile

    named = kubeconfig or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    paths = [Path(path) for path in named.split(os.pathsep) if path and Path(path).exists()]
    return sorted({entry.name for path in paths for entry in read_kubefile(str(path), path).contexts or ()})


def _listed(client: Any, path: str) -> list[str]:
    """Return the names of the first objects of a list."""
    import msgspec

    from equipoise.runtime.output import plain

    document = msgspec.json.decode(client.get(path, {"limit": OBJECTS_MAX}, bytes_max=64 << 20))
    return sorted({plain(str(item["metadata"]["name"])) for item in document["items"]})
