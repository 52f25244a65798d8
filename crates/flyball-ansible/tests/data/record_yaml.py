"""Records documents of PyYAML's dumper, which Ansible's to_yaml and to_nice_yaml use, in yaml.json.

Run `python record_yaml.py` with PyYAML installed. The values are random, from a fixed seed.
"""

import json
import random
from pathlib import Path

import yaml

FILE = Path(__file__).with_name("yaml.json")
PARTS = ["a", "word", "x: y", " ", "  ", "\n", "\n\n", "\t", "'", '"', "\\", "#", " #", ": ", ":", "-", "- ", ",", "[", "]",
         "{", "}", "&", "*", "!", "|", ">", "%", "@", "`", "?", "? ", "true", "no", "null", "~", "1", "0x1", "1.5", ".", "=",
         "<<", "é", "ü ", "\u0007", "\u00a0", "\u2028", "---", "...", "2024-01-01", "long " * 8, "it's " * 6, "12:30"]


def text(rng):
    return "".join(rng.choice(PARTS) for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 3, 5, 12])))


def value(rng, depth):
    kind = rng.randrange(10 if depth else 7)
    if kind < 4:
        return text(rng)
    if kind < 7:
        return rng.choice([None, True, False, 0, -7, 12345678901, 1.5, 1e20, 1e-7, -0.25, 100.0])
    if kind < 8:
        return [value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {text(rng): value(rng, depth - 1) for _ in range(rng.randrange(5))}


def main():
    rng, cases = random.Random(1), []
    while len(cases) < 400:
        data = value(rng, 4)
        options = {"indent": rng.choice([2, 4, 4, 3]), "width": rng.choice([80, 80, 40, 1000])}
        options["default_flow_style"] = rng.choice([None, False, False, True])
        dumped = yaml.dump(data, Dumper=yaml.CSafeDumper, allow_unicode=True, sort_keys=True, **options)
        cases.append({"value": data, **options, "text": dumped})
    FILE.write_text(json.dumps(cases, ensure_ascii=True, indent=0) + "\n")


if __name__ == "__main__":
    main()
