# Rejects computed names that users might influence: reserved variables, and files and roles outside of the project.
# It is an inventory plugin, because only those are loaded before playbooks.
import functools
import json
import os
import re
import sys

from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.role.definition import RoleDefinition
from ansible.plugins.inventory import BaseInventoryPlugin
from ansible.plugins.loader import action_loader
from ansible.plugins.strategy import StrategyBase
from ansible.utils.collection_loader import AnsibleCollectionConfig
from ansible.vars.manager import VariableManager

DOCUMENTATION = """
name: flyball_guard
type: inventory
short_description: refuses names that users must not choose
description: [Reads no inventory.]
"""

# The folder of the run, with the token of the proxy and the secret of the events. Tasks read only temporary files in it.
OWN = os.path.realpath(os.path.dirname(os.path.abspath(__file__)))
TEMPORARY = os.path.join(OWN, "tmp")
# Files in it that Ansible itself reads; those with variables are read before any playbook.
VARIABLES = {os.path.join(OWN, name) for name in ("variables.json", "connection.json")}
READABLE = {os.path.join(OWN, name) for name in ("inventory", "playbook.json")} | VARIABLES
with open(os.path.join(OWN, "run.json")) as file:
    RUN = json.load(file)
# The current task as written, before templates are evaluated. A run has one host, so it executes one task at a time.
ACTION = None
NAMES = VALUES = frozenset()
# Folders and files that YAML may be loaded from: those of the project, of collections, and those with literal paths.
COLLECTIONS = [os.path.join(path, "ansible_collections") for path in AnsibleCollectionConfig.collection_paths]
FOLDERS = {known for path in RUN["folders"] + COLLECTIONS for known in (path, os.path.realpath(path))}


def note(task):
    global ACTION, NAMES, VALUES
    ACTION = task.action.rpartition(".")[2]
    NAMES = {*map(str, task.args), str(task.register), "ansible_failed_task", "ansible_failed_result"}
    VALUES = {*map(str, task.args.values())}


def is_refused(name):
    folded = name.lstrip("_- ").lower()
    begins = any(folded == prefix or folded.startswith(prefix + "_") for prefix in RUN["prefixes"])
    return (begins or folded in RUN["names"] or name in RUN["own"]) and name not in RUN["allowed"]


def set_facts(original, self, host, facts):
    for name in map(str, facts):
        if ACTION == "set_fact" and name not in NAMES and is_refused(name):
            raise AnsibleError(
                "set_fact sets %r under a computed name, which is reserved by Ansible or the role: use a literal name in "
                "the task, or add the name to allowVariables in watches.yaml" % name[:64]
            )
    return original(self, host, facts)


def is_within(path, folder):
    return path == folder or path.startswith(os.path.join(folder, ""))


def is_private(path):
    found = os.path.realpath(path)
    return is_within(found, OWN) and found != OWN and not is_within(found, TEMPORARY) and found not in READABLE


def is_inside(path):
    # The project may contain links; `..` after a link refers to the parent of its target.
    known = {os.path.realpath(path)}
    if ".." not in path.split(os.sep):
        known.add(os.path.abspath(path))
    return any(is_within(path, folder) for path in known for folder in FOLDERS)


def check(path, is_allowed=is_inside):
    if is_private(path):
        raise AnsibleError("%r is a file of the run, which tasks must not read" % path[-200:])
    if not is_allowed(path):
        raise AnsibleError("%r is outside of the project and was loaded under a computed name: use a literal path" % path[-200:])


@functools.lru_cache(None)
def texts():
    found = []
    for folder in RUN["folders"]:
        for base, _, names in os.walk(folder) if os.path.isdir(folder) else [(os.path.dirname(folder), [], [os.path.basename(folder)])]:
            # The folder of the run contains variables of users.
            if is_within(os.path.realpath(base), OWN):
                continue
            for name in names:
                if name.endswith((".yml", ".yaml", ".j2", ".json")) and len(found) < 10000:
                    with open(os.path.join(base, name), errors="replace") as file:
                        found.append(file.read(1 << 22))
    return found


def is_literal(path):
    # A path that the author wrote somewhere in the project.
    home = os.path.join(os.path.expanduser("~"), "")
    spellings = [path, "~/" + path[len(home):]] if path.startswith(home) else [path]
    pattern = re.compile(r"(?<![\w./-])(?:%s)(?![\w./-])" % "|".join(map(re.escape, spellings)))
    return any(pattern.search(text) for text in texts())


def read_file(original, self, file_name, *args, **kwargs):
    check(self.path_dwim(os.fsdecode(file_name)), lambda path: is_inside(path) or is_literal(path))
    return original(self, file_name, *args, **kwargs)


def find_file(original, self, *args, **kwargs):
    found = original(self, *args, **kwargs)
    check(os.fsdecode(found), lambda path: True)
    return found


def load_variables(original, self, *args, **kwargs):
    original(self, *args, **kwargs)
    READABLE.difference_update(VARIABLES)


def load_file(original, self, file_name, *args, **kwargs):
    check(self.path_dwim(file_name))
    return original(self, file_name, *args, **kwargs)


def load_role_path(original, self, role_name):
    found = original(self, role_name)
    # A literal path may refer to a file that did not exist when the operator started.
    if role_name not in VALUES:
        check(found[1])
    FOLDERS.add(found[1])
    return found


def load_vars(original, self, filename, *args, **kwargs):
    allow_named(filename)
    return original(self, filename, *args, **kwargs)


def load_tasks(original, self, included_file, *args, **kwargs):
    allow_named(included_file._filename)
    return original(self, included_file, *args, **kwargs)


def allow_named(path):
    if not any("{{" in value or "{%" in value for value in VALUES):
        FOLDERS.add(os.path.realpath(path))


def wrap(of, name, function):
    original = getattr(of, name)
    setattr(of, name, functools.wraps(original)(lambda *args, **kwargs: function(original, *args, **kwargs)))


# If one of these is missing, neither this plugin nor the callback plugin is loaded, and the run fails.
wrap(VariableManager, "__init__", load_variables)
wrap(VariableManager, "set_nonpersistent_facts", set_facts)
wrap(DataLoader, "load_from_file", load_file)
# Lookups, and actions such as copy and template.
wrap(DataLoader, "_get_file_contents", read_file)
wrap(DataLoader, "get_real_file", read_file)
# Lookups and modules that open a file themselves, such as csvfile.
wrap(DataLoader, "path_dwim_relative_stack", find_file)
wrap(RoleDefinition, "_load_role_path", load_role_path)
wrap(StrategyBase, "_load_included_file", load_tasks)
wrap(action_loader.get("ansible.builtin.include_vars", class_only=True), "_load_files", load_vars)
sys.modules["flyball_guard"] = sys.modules[__name__]


class InventoryModule(BaseInventoryPlugin):
    NAME = "flyball_guard"

    def verify_file(self, path):
        return False
