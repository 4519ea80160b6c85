"""byoc-accel explain: which ops of a model are offloaded, and why the others are not."""
from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from .models import add_model_arguments, check_model, shapes, summary
from .progress import steps


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "No library is written; the same rules and memory sizes decide as in byoc-accel compile."
    add_model_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run(args: argparse.Namespace) -> int:
    from ..target import load_target
    from .table import print_table

    check_model(args.model)
    target = load_target(args.target)
    with steps() as show:
        show("loading TVM")
        from ..relay.files.build import explain_model

        info = explain_model(args.model, target=target, shapes=shapes(args)).model_info()
    if args.json:
        print(json.dumps(asdict(info), indent=2))
        return 0
    rows = [(row.name, row.op, row.macs or "", row.region or "host", row.reason) for row in info.ops]
    print_table(info.model, ("layer", "op", ">MACs", "runs in", "why not offloaded"), rows)
    print(summary(info))
    return 0
