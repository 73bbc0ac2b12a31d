"""What Prometheus is told of a node: usage, gaps, what is throttled, what was done. No pod names."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from equipoise.qos.loop import NodeCycleReport


class AgentMetrics:
    """The agent's series."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.rounds = Counter(
            "equipoise_agent_rounds", "Rounds by what was decided.", ["reason"], registry=registry
        )
        self.failures = Counter(
            "equipoise_agent_round_failures", "Rounds that could not be decided.", registry=registry
        )
        self.bugs = Counter(
            "equipoise_agent_round_bugs",
            "Bugs of Equipoise met in rounds; a round that one ends is a failure too.",
            registry=registry,
        )
        self.state_damaged = Gauge(
            "equipoise_agent_state_file_damaged",
            "Whether the state file could not be read when the agent began.",
            registry=registry,
        )
        self.unclear = Gauge(
            "equipoise_agent_unclear_quotas",
            "Containers with a lower quota than they ask for, left as they are after the state was lost.",
            registry=registry,
        )
        self.actions = Counter(
            "equipoise_agent_actions", "Actions by what came of them.", ["kind", "result"], registry=registry
        )
        self.failed_turns = Counter(
            "equipoise_agent_failed_turns",
            "Pods that an error left out of a round, and actions that it ended.",
            registry=registry,
        )
        self.held = Counter(
            "equipoise_agent_held",
            "Actions that were held, by the guard.",
            ["kind", "reason"],
            registry=registry,
        )
        self.seconds = Gauge(
            "equipoise_agent_round_cpu_seconds", "CPU time of the last round.", registry=registry
        )
        self._add_rules(registry)
        self.throttled = Gauge(
            "equipoise_agent_throttled_containers", "Containers whose quota is ours.", registry=registry
        )
        self.pods = Gauge("equipoise_agent_pods", "Running pods of the node.", registry=registry)
        self.refused = Gauge(
            "equipoise_agent_refused_pods",
            "Pods whose eviction was refused, and is not asked for again yet.",
            registry=registry,
        )
        self.left_out = Gauge(
            "equipoise_agent_policies_left_out", "Policies that do not fit.", registry=registry
        )
        self.enforcing = Gauge(
            "equipoise_agent_enforcing", "Whether anything may be changed now.", registry=registry
        )

    def _add_rules(self, registry: CollectorRegistry) -> None:
        self.usage = Gauge(
            "equipoise_agent_usage", "What the rules compared.", ["rule", "metric"], registry=registry
        )
        self.waterline = Gauge(
            "equipoise_agent_waterline", "What they compared it with.", ["rule", "metric"], registry=registry
        )
        self.gap = Gauge(
            "equipoise_agent_gap", "Gaps in millicores or bytes.", ["side", "metric"], registry=registry
        )

    def observe_cycle(self, done: NodeCycleReport, throttled: int, cpu_seconds: float) -> None:
        """Take in one round; series of rules that are gone are removed."""
        decision, details = done.decision, done.details
        self.rounds.labels(decision.reason.code.value).inc()
        for outcome in done.outcomes:
            self.actions.labels(type(outcome.action).__name__, outcome.result).inc()
        self.failed_turns.inc(len(done.failed_turns))
        for held in decision.held:
            self.held.labels(type(held.action).__name__, held.reason.value).inc()
        self.seconds.set(cpu_seconds)
        self.throttled.set(throttled)
        self.pods.set(details.pods)
        self.refused.set(details.refused)
        for gauge in (self.usage, self.waterline, self.gap):
            gauge.clear()
        for key, rule in details.rules.items():
            self.waterline.labels(key, rule.metric).set(rule.waterline)
            if rule.usage is not None:
                self.usage.labels(key, rule.metric).set(rule.usage)
        gaps_of = details.gaps
        sides = {
            "evict": gaps_of.evict,
            "throttleDown": gaps_of.throttle_down,
            "throttleUp": gaps_of.throttle_up,
        }
        for side, gaps in sides.items():
            for metric, gap in gaps.items():
                if gap is not None:
                    self.gap.labels(side, metric).set(gap)
