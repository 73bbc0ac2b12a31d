"""`equipoise qos`: pods on a node and its waterlines, and how their plan is printed."""

import time
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

from equipoise.cli import options
from equipoise.cli.journal import write_plan
from equipoise.cli.options import option, words
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.runtime.output import Format, next_step, print_plan, read_yaml, warn

if TYPE_CHECKING:
    from equipoise.adapters.kubernetes import Client
    from equipoise.core.decision import Action, Decision
    from equipoise.qos.observation import Observation
    from equipoise.qos.policy import QosPolicy
    from equipoise.qos.waterlines import QosMemory

    Inputs = tuple[QosPolicy, Observation, QosMemory]


app = options.group("Throttle or evict pods on a node under pressure.")


@app.command()
@options.expanded
def plan(
    *,
    file: Annotated[
        str | None, option("FILE", "File with a node, its pods and policies; - is standard input.", "--from")
    ] = None,
    node: Annotated[
        str | None,
        option("NAME", "Name of a node, whose usage is read from its kubelet (needs nodes/proxy)."),
    ] = None,
    excess: Annotated[int, option("PERCENT", "Widen every gap by this percentage.", min=0, max=1000)] = 0,
    output: options.Output = Format.TABLE,
    journal: options.Journal = None,
    kubernetes: options.KubernetesOptions,
) -> None:
    """Show which pods would be throttled, evicted or restored, in which order, and why. Changes nothing."""
    if (file is None) == (node is None):
        raise BadInput("--from or --node: expected exactly one of them")
    if node is not None:
        inputs = _inputs_of_node(kubernetes.connect(), node, time.time(), excess)
    else:
        from equipoise.core.file_forms import QOS, form_of_document, refuse_other_form
        from equipoise.qos.plan_file import read_plan_file

        path = file or "-"
        document = read_yaml(path)
        refuse_other_form(form_of_document(document), path, (QOS,))
        planned = read_plan_file(document, path, time.time(), excess)
        for warning in planned.warnings:
            warn(warning)
        inputs = planned.policy, planned.seen, planned.memory
    from equipoise.qos.decide import decide
    from equipoise.qos.policy import policy_json

    decision = decide(*inputs).decision
    print_qos(decision, output)
    policy, observation, memory = inputs
    write_plan(journal, "qos", policy_json(policy), observation, memory.to_data(), decision)


def _inputs_of_node(client: "Client", name: str, at: float, excess_percent: int) -> "Inputs":
    """Return the inputs of a decision for a node as its kubelet measures it.

    Counts of rounds are taken as reached, and cool-downs as over.
    """
    from equipoise.adapters.kubernetes.kinds import list_kind
    from equipoise.adapters.kubernetes.node import NODE, PODS_OF_NODE, read_from_kubelet
    from equipoise.adapters.kubernetes.policies import KubernetesPolicies
    from equipoise.qos.observe import PendingEffects, observe
    from equipoise.qos.status import QOS_KINDS
    from equipoise.qos.waterlines import memory_at_thresholds
    from equipoise.runtime.agent.node_api import read_objects

    nodes = list_kind(client, NODE, params={"fieldSelector": f"metadata.name={name}"}).records
    if not nodes:
        raise WorldFailed(f"node {name}: not found at {client.address}")
    policies = (KubernetesPolicies(client, kind) for kind in QOS_KINDS)
    policy, problems = read_objects(found for each in policies for found in each.listed_if_installed())
    for problem in problems:
        warn(f"left out: {problem}")
    pods = list_kind(client, PODS_OF_NODE, params={"fieldSelector": f"spec.nodeName={name}"}).records
    observation = observe(
        name,
        at,
        read_from_kubelet(client, name, pods),
        pods,
        PendingEffects(),
        labels=dict(nodes[0].labels),
        is_scheduling_disabled=nodes[0].is_disabled,
    )
    asked = policy.model_copy(update={"excess_percent": excess_percent})
    return asked, observation, memory_at_thresholds(asked)


VERBS = {
    "EvictPod": "evict",
    "ThrottlePod": "throttle",
    "RestorePod": "restore",
    "DisableScheduling": "no new pods",
    "EnableScheduling": "new pods again",
}
STYLES = {"EvictPod": "bold red", "ThrottlePod": "bold yellow", "RestorePod": "bold green"}
STATES = {"Crossed": "bold yellow", "Unknown": "yellow"}
RIGHT = {"#", "USAGE", "WATERLINE", "ROUNDS", "RELEASES", "GAP AFTER"}


def print_qos(decision: "Decision", form: Format) -> None:
    if form is not Format.TABLE:
        print_plan("qos", [decision], form)
        return
    from rich.text import Text

    from equipoise.runtime.console import Console

    console = Console()
    if rules := decision.reason.numbers["rules"]:
        console.print(_rules(rules))
        console.print()
    if decision.actions or decision.held:
        console.print(_plan(decision))
        console.print()
    code = decision.reason.code.value, "bold yellow" if decision.actions else "dim"
    console.print(Text.assemble(f"{decision.subject}: ", code, f". {decision.reason.sentence}"))
    console.print("Nothing was changed.")
    agent = words("equipoise agent", "--node", decision.subject, "--mode", "Enforce")
    console.print(
        next_step([decision], f"the agent of the node does this where its mode is Enforce: `{agent}`")
    )


def _rules(rules: Mapping[str, Mapping[str, Any]]) -> Any:
    from rich.text import Text

    from equipoise.runtime.console import table

    names = ("RULE", "METRIC", "USAGE", "WATERLINE", "STATE", "ROUNDS", "ACTION")
    laid_out = table(*names, right=RIGHT)
    for key, rule in rules.items():
        rounds = rule["breaches"] if rule["state"] == "Crossed" else rule["clear"]
        state = "Preview" if rule["preview"] and rule["state"] == "Crossed" else rule["state"]
        laid_out.add_row(
            Text(key),
            rule["metric"],
            _value(rule["metric"], rule["usage"]),
            _value(rule["metric"], rule["waterline"]),
            Text(state, style=STATES.get(rule["state"], "dim")),
            str(rounds),
            Text(rule["action"]),
        )
    return laid_out


def _plan(decision: "Decision") -> Any:
    from rich.text import Text

    from equipoise.runtime.console import table

    names = ("#", "DO", "POD", "FOR", "RELEASES", "GAP AFTER", "QUOTA")
    laid_out = table(*names, right=RIGHT)
    for turn, action in enumerate(decision.actions, 1):
        kind = type(action).__name__
        laid_out.add_row(str(turn), Text(VERBS[kind], style=STYLES.get(kind, "bold")), *_cells(action))
    for held in decision.held:
        verb = f"{VERBS[type(held.action).__name__]} ({held.reason.value})"
        laid_out.add_row("-", Text(verb, style="dim"), *_cells(held.action))
    return laid_out


def _cells(action: "Action") -> list[Any]:
    from rich.text import Text

    from equipoise.qos.observation import METRICS

    metric: str = getattr(action, "metric", "")
    # Of what has an amount, the rules above have the whole name.
    has_amount = metric in METRICS and METRICS[metric].is_quantifiable
    gaps: Mapping[str, float | None] = getattr(action, "gap_after", None) or {}
    quota: Mapping[str, int] = getattr(action, "quota", None) or {}
    quotas = [f"{name} {'unlimited' if value < 0 else value}" for name, value in quota.items()]
    return [
        Text(action.pod or getattr(action, "node", "")),
        METRICS[metric].resource.value if has_amount else metric or "-",
        _amount(metric, getattr(action, "release", None)),
        "\n".join(_amount(name, gap) for name, gap in gaps.items()) or "-",
        Text("\n".join(quotas) or "-"),
    ]


def _amount(metric: str, value: float | None) -> str:
    from equipoise.qos.explain import amount
    from equipoise.qos.observation import METRICS

    if value is None or metric not in METRICS:
        return "-"
    return amount(METRICS[metric].resource, Fraction(value))


def _value(metric: str, value: float | None) -> str:
    from equipoise.qos.explain import value_of
    from equipoise.qos.observation import METRICS

    return "unknown" if value is None else value_of(METRICS[metric], Fraction(value))
