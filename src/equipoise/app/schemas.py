"""`equipoise schema`: the JSON Schema of every document that we read or write."""

from typing import Annotated, Any

import typer

from equipoise.app.output import Format, print_document

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Such as plan or rotationpolicy.")] = "",
    is_list: Annotated[bool, typer.Option("--list", help="Name the schemas there are.")] = False,
) -> None:
    """Print the JSON Schema of a document that we read or write."""
    from equipoise.model.errors import BadInput

    if is_list or not name:
        print("\n".join(sorted(TITLES)))
        return
    if name.lower() not in TITLES:
        raise BadInput(f"schema {name!r}: expected one of {', '.join(sorted(TITLES))}")
    print_document(json_schema(name.lower()), Format.JSON)


def json_schema(name: str) -> dict[str, Any]:
    """Give one schema by its name."""
    from equipoise.app.shapes import SHAPES

    shape = SHAPES[name]()
    return shape if "openapi" in shape else {"$schema": DIALECT, "title": TITLES[name], **shape}


TITLES = {
    "analytics": "An Analytics manifest",
    "avoidanceaction": "An AvoidanceAction manifest",
    "crds-apply": "What `equipoise crds apply -o json` prints",
    "decision": "One decision of a plan",
    "doctor": "What `equipoise doctor -o json` prints",
    "forecast": "What `equipoise forecast -o json` prints",
    "forecast-backtest": "What `equipoise forecast --backtest SPAN -o json` prints",
    "ledger": "A Ledger manifest",
    "nodeqos": "A NodeQOS manifest",
    "nodeqosensurancepolicy": "A NodeQOSEnsurancePolicy manifest",
    "plan": "What `equipoise BALANCER plan -o json` prints",
    "podqos": "A PodQOS manifest",
    "pools-answer": "What `equipoise pools allocate|release|drain|register|... -o json` prints",
    "pools-openapi": "The OpenAPI document of `equipoise pools serve`",
    "pools-config": "What `equipoise pools config get|set -o json` prints, and `set --from` reads",
    "pools-fsck": "What `equipoise pools fsck -o json` prints",
    "pools-status": "What `equipoise pools status -o json` prints",
    "proportional-plan": "What `equipoise proportional plan -o json` prints",
    "proportional-simulation": "What `equipoise proportional simulate -o json` prints",
    "qos-plan": "What `equipoise qos plan -o json` prints",
    "qos-plan-file": "What `equipoise qos plan --from FILE` reads",
    "recommendation": "A Recommendation manifest",
    "recommendation-apply": "What `equipoise recommendation apply -o json` prints",
    "recommendation-plan": "What `equipoise recommendation plan -o json` prints",
    "recommendation-simulation": "What `equipoise recommendation simulate -o json` prints",
    "rotation-plan-file": "What `equipoise rotation plan --from FILE` reads",
    "rotationpolicy": "A RotationPolicy manifest",
    "scalingpolicy": "A ScalingPolicy manifest",
    "validate": "What `equipoise validate -o json` prints",
}
"""Every schema there is. The shapes are loaded when one is asked for."""
