"""What to type for common needs: the examples of every help page.

Each is checked against the command line by a test.
"""

from collections.abc import Mapping, Sequence

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
    "operator": (
        ("Run two balancers, for policies in namespace shop", "operator --balancers rotation,pools -n shop"),
    ),
    "pause": (
        ("Stop every action in the cluster", "pause --reason 'incident 42'"),
        ("Stop every action in one namespace", "pause -n shop"),
    ),
    "pools": (("Show the tiers", "pools status"),),
    "pools allocate": (("Allocate a pod of tier gold to a call", "pools allocate call-7 --tier gold"),),
    "pools config": (("Change two targets", "pools config set gold=4,basic=2"),),
    "pools config get": (
        ("Show the tiers", "pools config get"),
        (
            "Copy the tiers to another Redis",
            "pools config get | equipoise pools config set --from - --redis URL",
        ),
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
    "pools plan-scale-down": (
        ("Show which pods a StatefulSet of 8 replicas loses", "pools plan-scale-down 8"),
    ),
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
    "proportional simulate": (
        ("Compare the ways of smoothing on a policy", "proportional simulate --policy policy.yaml"),
    ),
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
    "resume": (
        ("End the pause of the whole cluster", "resume"),
        ("End the pause of one namespace", "resume -n shop"),
    ),
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
    "rotation simulate": (
        ("Compare the ways of rotating for one cause", "rotation simulate --cause noisy-node"),
    ),
    "schema": (("List the schemas", "schema"), ("Print the schema of a plan", "schema plan")),
    "validate": (("Check manifests before they are applied", "validate policies/*.yaml"),),
    "version": (("Print the version as JSON", "version -o json"),),
}
"""What to type for a common need, by command; each begins with the words behind `equipoise`."""


def example_line(line: str, root: str = "equipoise") -> str:
    """Return an example as it is typed, where the program is called `root`."""
    whole = line if line.startswith("source ") else f"equipoise {line}"
    return whole.replace("equipoise ", f"{root} ")
