# Rejects computed names that users might influence: reserved variables, and files and roles outside of the project.
# Names are checked where variables are set. Names of connections are also checked where they are read, in whatever way
# they were set: they have an effect only if the operator sets them, `watches.yaml` allows them, or the role names them.
# It is an inventory plugin, because only those are loaded before playbooks.
import functools
import json
import os
import re
import sys

from ansible import constants as C
from ansible.config.manager import ConfigManager
from ansible.errors import AnsibleError
from ansible.executor.task_executor import TaskExecutor
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.loop_control import LoopControl
from ansible.playbook.role.definition import RoleDefinition
from ansible.playbook.task_include import TaskInclude
from ansible.plugins.inventory import BaseInventoryPlugin
from ansible.plugins.loader import action_loader
from ansible.plugins.strategy import StrategyBase
from ansible.utils.collection_loader import AnsibleCollectionConfig
from ansible.vars.manager import VariableManager
from jinja2 import FileSystemLoader

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
# Variables that the operator, `watches.yaml` or the role sets.
TRUSTED = {*RUN["given"], *RUN["allowed"], *RUN["declared"]}
# The current task as written, before templates are evaluated. A run has one host, so it executes one task at a time.
NAMES = VALUES = frozenset()
# True if the task sets facts, rather than a module that gathers them; and if `include_vars` has a computed name.
SETS_FACTS = HAS_COMPUTED_NAME = False
# Variables of connections, users and interpreters that Ansible reads without a plugin.
CONNECTION = {name for names in C.MAGIC_VARIABLE_MAPPING.values() for name in names} | set(C.COMMON_CONNECTION_VARS)
CONNECTION_PATTERN = re.compile(r"ansible_become(_\w+)?|ansible_\w+_interpreter")
# Folders and files that YAML may be loaded from: those of the project, of collections, and those with literal paths.
COLLECTIONS = [os.path.join(path, "ansible_collections") for path in AnsibleCollectionConfig.collection_paths]
FOLDERS = {known for path in RUN["folders"] + COLLECTIONS for known in (path, os.path.realpath(path))}


def is_template(value):
    return "{{" in value or "{%" in value


def note(task):
    global NAMES, VALUES, SETS_FACTS, HAS_COMPUTED_NAME
    applied = task.args.get("apply") or {}
    applied = [*applied["vars"]] if isinstance(applied.get("vars"), dict) else []
    NAMES = {*map(str, task.args), *applied, str(task.register), "ansible_failed_task", "ansible_failed_result"}
    VALUES = {*map(str, task.args.values())}
    SETS_FACTS = task.action.rpartition(".")[2] == "set_fact" or is_template(task.action)
    HAS_COMPUTED_NAME = is_template(str(task.args.get("name"))) or "_variable_params" in task.args


def has_special_prefix(name):
    folded = name.lstrip("_- ").lower()
    return any(folded == prefix or folded.startswith(prefix + "_") for prefix in RUN["prefixes"])


def is_special(name):
    return has_special_prefix(name) or name.lstrip("_- ").lower() in RUN["names"]


def is_refused(name):
    return (is_special(name) or name in RUN["own"]) and name not in RUN["allowed"]


def reject_name(what, name):
    raise AnsibleError(
        "%s sets %r under a computed name, which is reserved by Ansible or the role: use a literal name in "
        "the role, or add the name to allowVariables in watches.yaml" % (what, name[:64])
    )


def check_names(what, names, is_refused=is_refused):
    for name in map(str, names):
        if name not in NAMES and is_refused(name):
            reject_name(what, name)


def is_untrusted(name):
    return has_special_prefix(name) and name not in TRUSTED


def set_facts(original, self, host, facts):
    check_names("set_fact", facts)
    return original(self, host, facts)


def cache_facts(original, self, host, facts):
    # Other runs may read them.
    if SETS_FACTS:
        check_names("set_fact", facts)
    return original(self, host, facts)


def set_variable(original, self, host, name, value):
    # Files of the project contain names of the role.
    if HAS_COMPUTED_NAME or name not in RUN["declared"]:
        check_names("include_vars", [name])
    return original(self, host, name, value)


def add_host(original, self, host, result):
    # Hosts of earlier tasks are added again when the inventory is refreshed.
    if not result.get("refresh"):
        check_names("add_host", host.get("host_vars") or {})
    return original(self, host, result)


def validate_loop(original, self, *args, **kwargs):
    written = (self.loop_var, self.index_var)
    original(self, *args, **kwargs)
    for name, validated in zip(written, (self.loop_var, self.index_var)):
        if name != validated:
            reject_name("loop_control", str(validated))


def apply_to_included(original, self):
    variables = (self.args.get("apply") or {}).get("vars") or {}
    for variables in variables if isinstance(variables, list) else [variables]:
        check_names("apply", variables)
    return original(self)


def check_connection(variables):
    for name in variables:
        if (name in CONNECTION or CONNECTION_PATTERN.fullmatch(name)) and is_untrusted(name):
            reject_name("a task", name)


def get_variables(original, self, *args, **kwargs):
    variables = original(self, *args, **kwargs)
    check_connection(variables)
    return variables


def execute(original, self, *args, **kwargs):
    # Those of a loop are set before.
    check_connection(kwargs.get("variables") or (args and args[-1]) or self._job_vars)
    return original(self, *args, **kwargs)


def get_option(original, self, config, cfile=None, plugin_type=None, plugin_name=None, keys=None, variables=None, *args, **kwargs):
    if variables:
        option = self.get_configuration_definitions(plugin_type, plugin_name).get(config) or {}
        for name in [variable["name"] for variable in option.get("vars") or []]:
            # Ansible sets those of connections itself after they were checked, such as `ansible_host`.
            if name in variables and name not in CONNECTION and is_untrusted(name):
                reject_name("a task", name)
    return original(self, config, cfile, plugin_type, plugin_name, keys, variables, *args, **kwargs)


def is_within(path, folder):
    return path == folder or path.startswith(os.path.join(folder, ""))


def is_temporary(path):
    return is_within(os.path.realpath(path), TEMPORARY)


def is_private(path):
    found = os.path.realpath(path)
    return is_within(found, OWN) and found != OWN and not is_within(found, TEMPORARY) and found not in READABLE


def is_inside(path):
    known = {os.path.realpath(path)}
    # Tasks write the other files of the run.
    if any(is_within(path, OWN) for path in known):
        return known <= READABLE
    # The project may contain links; `..` after a link refers to the parent of its target.
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
    check(self.path_dwim(os.fsdecode(file_name)), lambda path: is_temporary(path) or is_inside(path) or is_literal(path))
    return original(self, file_name, *args, **kwargs)


def find_file(original, self, paths, folder, *args, **kwargs):
    found = original(self, paths, folder, *args, **kwargs)
    # Temporary files are data.
    check(os.fsdecode(found), lambda path: folder not in ("tasks", "templates", "vars") or not is_temporary(path))
    return found


def find_template(original, self, *args, **kwargs):
    source, path, is_current = original(self, *args, **kwargs)
    check(path, lambda path: not is_temporary(path))
    return source, path, is_current


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
    is_known = is_inside(filename)
    allow_named(filename)
    failed, message, variables = original(self, filename, *args, **kwargs)
    if not is_known:
        check_names("include_vars", variables)
    return failed, message, variables


def load_tasks(original, self, included_file, *args, **kwargs):
    allow_named(included_file._filename)
    return original(self, included_file, *args, **kwargs)


def allow_named(path):
    if not any(map(is_template, VALUES)):
        FOLDERS.add(os.path.realpath(path))


def wrap(of, name, function):
    original = getattr(of, name)
    setattr(of, name, functools.wraps(original)(lambda *args, **kwargs: function(original, *args, **kwargs)))


# If one of these is missing, neither this plugin nor the callback plugin is loaded, and the run fails.
wrap(VariableManager, "__init__", load_variables)
wrap(VariableManager, "set_nonpersistent_facts", set_facts)
wrap(VariableManager, "set_host_facts", cache_facts)
wrap(VariableManager, "set_host_variable", set_variable)
wrap(InventoryManager, "add_dynamic_host", add_host)
wrap(LoopControl, "post_validate", validate_loop)
wrap(TaskInclude, "build_parent_block", apply_to_included)
wrap(VariableManager, "get_vars", get_variables)
wrap(TaskExecutor, "_execute", execute)
wrap(ConfigManager, "get_config_value_and_origin", get_option)
wrap(DataLoader, "load_from_file", load_file)
# Lookups, and actions such as copy and template.
wrap(DataLoader, "_get_file_contents", read_file)
wrap(DataLoader, "get_real_file", read_file)
# Lookups and modules that open a file themselves, such as csvfile.
wrap(DataLoader, "path_dwim_relative_stack", find_file)
# Files that templates include.
wrap(FileSystemLoader, "get_source", find_template)
wrap(RoleDefinition, "_load_role_path", load_role_path)
wrap(StrategyBase, "_load_included_file", load_tasks)
wrap(action_loader.get("ansible.builtin.include_vars", class_only=True), "_load_files", load_vars)
sys.modules["flyball_guard"] = sys.modules[__name__]


class InventoryModule(BaseInventoryPlugin):
    NAME = "flyball_guard"

    def verify_file(self, path):
        return False
