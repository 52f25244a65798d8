"""Fallback for cargo-deny: checks the licenses, bans and sources of deny.toml with `cargo metadata`.

It uses the license that each crate declares, and reads neither license files nor advisories.
"""

import json
import re
import subprocess
import sys
import tomllib
from collections import defaultdict

CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"


def is_allowed(license, allowed):
    """Evaluates an SPDX expression; `/` is the deprecated spelling of OR."""
    tokens = re.findall(r"[()]|[^\s()/]+(?: WITH [^\s()]+)?", (license or "").replace("/", " OR "))
    operators = {"(": "(", ")": ")", "AND": "and", "OR": "or"}
    return bool(tokens) and eval(" ".join(operators.get(token) or str(token in allowed) for token in tokens))


def is_version(version, prefix):
    return version == prefix or version.startswith(prefix + ".")


def is_enabled(package, node, edge):
    """Returns True if a dependency is enabled. cargo also lists optional ones with only weak features (`crate?/std`)."""
    matches = [each for each in package["dependencies"] if (each["rename"] or each["name"]).replace("-", "_") == edge["name"]]
    if not matches or any(not each["optional"] for each in matches):
        return True
    name = matches[0]["rename"] or matches[0]["name"]
    parts = [part for feature in node["features"] for part in package["features"].get(feature, [])]
    return any(part == f"dep:{name}" or part.startswith(f"{name}/") for part in parts)


def built_packages(metadata):
    """Returns the packages of the build graph without dev-dependencies, as cargo-deny does."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    packages = {package["id"]: package for package in metadata["packages"]}
    visited, pending = set(), list(metadata["workspace_members"])
    while pending:
        current = pending.pop()
        if current not in visited:
            visited.add(current)
            for edge in nodes[current]["deps"]:
                is_dev = all(kind["kind"] == "dev" for kind in edge["dep_kinds"])
                if not is_dev and is_enabled(packages[current], nodes[current], edge):
                    pending.append(edge["pkg"])
    return [packages[id] for id in visited]


def findings(config, metadata):
    packages = built_packages(metadata)
    allowed, bans = set(config["licenses"]["allow"]), config["bans"]
    skipped = [entry["crate"].partition("@") for entry in bans["skip"]]
    banned = {entry["crate"] for entry in bans["deny"]}
    versions = defaultdict(set)
    for package in packages:
        name, version, source = package["name"], package["version"], package["source"]
        if not is_allowed(package["license"], allowed):
            yield f"{name} {version}: license {package['license']!r}"
        if name in banned:
            yield f"{name} {version}: banned"
        if source not in (None, CRATES_IO):
            yield f"{name} {version}: from {source}"
        if not any(name == crate and is_version(version, prefix) for crate, _, prefix in skipped):
            versions[name].add(version)
        if source is None:
            wildcards = [each["name"] for each in package["dependencies"] if each["req"] == "*" and not each.get("path")]
            yield from (f"{name}: wildcard dependency {each}" for each in wildcards)
    for name, duplicates in versions.items():
        if len(duplicates) > 1:
            yield f"{name}: versions {', '.join(sorted(duplicates))}"


def main():
    with open("deny.toml", "rb") as file:
        config = tomllib.load(file)
    command = ["cargo", "metadata", "--format-version=1", "--all-features", "--locked"]
    errors = sorted(findings(config, json.loads(subprocess.check_output(command))))
    print("\n".join(errors) or "bans, licenses, sources ok, by cargo metadata")
    sys.exit(1 if errors else 0)


main()
