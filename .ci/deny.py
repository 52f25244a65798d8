"""What deny.toml says of licenses, bans and sources, by `cargo metadata`: for where cargo-deny cannot be had.

It goes by the license that each crate declares, and does not read license files or advisories.
"""

import json
import re
import subprocess
import sys
import tomllib
from collections import defaultdict

CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"


def is_allowed(license, allowed):
    """Evaluates an SPDX expression; `/` is the old way to write OR."""
    tokens = re.findall(r"[()]|[^\s()/]+(?: WITH [^\s()]+)?", (license or "").replace("/", " OR "))
    words = {"(": "(", ")": ")", "AND": "and", "OR": "or"}
    return bool(tokens) and eval(" ".join(words.get(token) or str(token in allowed) for token in tokens))


def is_version(version, prefix):
    return version == prefix or version.startswith(prefix + ".")


def is_on(package, node, edge):
    """Tells whether a dependency is on: cargo lists an optional one already if a feature is weak on it (`crate?/std`)."""
    named = [each for each in package["dependencies"] if (each["rename"] or each["name"]).replace("-", "_") == edge["name"]]
    if not named or any(not each["optional"] for each in named):
        return True
    name = named[0]["rename"] or named[0]["name"]
    parts = [part for feature in node["features"] for part in package["features"].get(feature, [])]
    return any(part == f"dep:{name}" or part.startswith(f"{name}/") for part in parts)


def built(metadata):
    """Returns the packages that are a part of what is built; as for cargo-deny, those for tests alone are not."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    packages = {package["id"]: package for package in metadata["packages"]}
    found, rest = set(), list(metadata["workspace_members"])
    while rest:
        at = rest.pop()
        if at not in found:
            found.add(at)
            for edge in nodes[at]["deps"]:
                is_for_tests = all(kind["kind"] == "dev" for kind in edge["dep_kinds"])
                if not is_for_tests and is_on(packages[at], nodes[at], edge):
                    rest.append(edge["pkg"])
    return [packages[at] for at in found]


def findings(config, metadata):
    packages = built(metadata)
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
            wild = [each["name"] for each in package["dependencies"] if each["req"] == "*" and not each.get("path")]
            yield from (f"{name}: any version of {each}" for each in wild)
    for name, several in versions.items():
        if len(several) > 1:
            yield f"{name}: versions {', '.join(sorted(several))}"


def main():
    with open("deny.toml", "rb") as file:
        config = tomllib.load(file)
    command = ["cargo", "metadata", "--format-version=1", "--all-features", "--locked"]
    found = sorted(findings(config, json.loads(subprocess.check_output(command))))
    print("\n".join(found) or "bans, licenses, sources ok, by cargo metadata")
    sys.exit(1 if found else 0)


main()
