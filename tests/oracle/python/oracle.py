#!/usr/bin/env python3
"""The oracle's command line. Documents come from standard input and go to standard output, as JSON."""

import argparse
import json
import random
import sys

import closed
import generate
import loops as closed_loops
from drive import drive


def run(_):
    """Parameters and commands: when each is done."""
    document = json.load(sys.stdin)
    return drive(document["parameters"], document["commands"], document.get("changes", ()))


def case(args):
    """Parameters (of a shape, or from standard input), commands and changes by seed, and when each is done."""
    rng = random.Random(f"{args.name} {args.seed}")
    parameters = generate.SHAPES[args.name](rng) if args.name in generate.SHAPES else json.load(sys.stdin)
    if args.scaled:
        parameters = generate.scaled(rng, parameters)
    commands = generate.commands(rng, parameters, args.commands)
    changes = generate.changes(rng, parameters, commands)
    return {
        "parameters": parameters,
        "commands": commands,
        "changes": changes,
        "expected": drive(parameters, commands, changes),
    }


def shapes(_):
    """The names of the shapes that parameters are generated of."""
    return list(generate.SHAPES)


def loops(_):
    """A drive in closed loops: what the last phase took. Documents stand one on each line, and so do the answers."""
    return [closed_loops.run(json.loads(line)) for line in sys.stdin if line.strip()]


def changed(base, change):
    """The base with what is changed in it; objects within are merged likewise."""
    merged = dict(base)
    for name, value in change.items():
        merged[name] = changed(base.get(name, {}), value) if isinstance(value, dict) else value
    return merged


def vectors(args):
    """Whether the oracle gives what was worked out by hand."""
    with open(args.file, encoding="utf-8") as file:
        document = json.load(file)
    tried, wrong = document["vectors"], 0
    for vector in tried:
        parameters = changed(document["bases"][vector["base"]], vector.get("change", {}))
        changes = [
            {"t": change["t"], "parameters": changed(parameters, change["change"])} for change in vector.get("changes", ())
        ]
        got = drive(parameters, vector["commands"], changes)["done"]
        if got != vector["done"]:
            print(f"{vector['name']}: {got}, and by hand {vector['done']}")
            wrong += 1
    print(f"{len(tried)} vectors, {wrong} differ")
    sys.exit(wrong > 0)


def check(args):
    """The oracle against closed forms and plain simulations."""
    wrong = 0
    for what, expected, measured, interval, within in closed.checks(args.seeds):
        off = measured / expected - 1
        bad = abs(off) > within
        wrong += bad
        either = f"± {interval:.3g}" if interval else ""
        print(f"{what:55} {expected:12.5g} {measured:12.5g} {either:9} {100 * off:+6.2f} %{'  WRONG' * bad}", flush=True)
    sys.exit(wrong > 0)


def main():
    parser = argparse.ArgumentParser(description="When commands are done, by a second reading of the page.")
    tasks = parser.add_subparsers(required=True)
    for function in (run, case, loops, shapes, vectors, check):
        task = tasks.add_parser(function.__name__, help=function.__doc__)
        task.set_defaults(function=function)
        if function is case:
            task.add_argument("--name", required=True, help="a shape, or any other name with parameters on standard input")
            task.add_argument("--seed", type=int, required=True)
            task.add_argument("--commands", type=int, required=True)
            task.add_argument("--scaled", action="store_true", help="make the drive small")
        elif function is vectors:
            task.add_argument("file")
        elif function is check:
            task.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    json.dump(args.function(args), sys.stdout)


if __name__ == "__main__":
    main()
