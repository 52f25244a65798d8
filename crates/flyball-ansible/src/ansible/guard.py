# Rejects computed names that users might influence: reserved variables, and files and roles outside of the project.
# Names are checked where variables are set. Names of connections are also checked where they are read, in whatever way
# they were set: they have an effect only if the operator sets them, `watches.yaml` allows them, or the role names them.
# Behind these checks, the kernel limits the files that the processes of the run access, under any name.
# It is an inventory plugin, because only those are loaded before playbooks.
import contextlib
import functools
import importlib.util
import json
import os
import re
import resource
import sys

from ansible import constants as C
from ansible.config.manager import ConfigManager
from ansible.errors import AnsibleError
from ansible.executor.task_executor import TaskExecutor
from ansible.inventory.manager import InventoryManager
from ansible.module_utils.urls import Request
from ansible.parsing.dataloader import DataLoader
from ansible.playbook import Playbook
from ansible.playbook.loop_control import LoopControl
from ansible.playbook.role.definition import RoleDefinition
from ansible.playbook.task_include import TaskInclude
from ansible.plugins.action import ActionBase
from ansible.plugins.inventory import BaseInventoryPlugin
from ansible.plugins.loader import action_loader, connection_loader, lookup_loader
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


def load(name):
    """Imports a file of the run."""
    spec = importlib.util.spec_from_file_location(name, os.path.join(OWN, name + ".py"))
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    return module


# The folder of the run, with the token of the proxy and the secret of the events. Tasks read only temporary files.
OWN = os.path.realpath(os.path.dirname(os.path.abspath(__file__)))
TEMPORARY, HOME = os.path.join(OWN, "tmp"), os.path.join(OWN, "home")
# The folder with those of all runs.
RUNS = os.path.dirname(OWN)
flyball_literals, flyball_wall = load("flyball_literals"), load("flyball_wall")
SECRETS, is_within, last = flyball_literals.SECRETS, flyball_literals.is_within, flyball_literals.last
# What the operator created in it.
INITIAL = {*os.listdir(OWN), "__pycache__"}
# Files in it that Ansible itself reads; those with variables are read before any playbook.
VARIABLES = {os.path.join(OWN, name) for name in ("variables.json", "connection.json")}
READABLE = {os.path.join(OWN, name) for name in ("inventory", "playbook.json")} | VARIABLES
with open(os.path.join(OWN, "run.json")) as file:
    RUN = json.load(file)
# Variables that the operator, `watches.yaml` or the role sets.
TRUSTED = {*RUN["given"], *RUN["allowed"], *RUN["declared"]}
# Variables from the spec that the role does not declare.
FIELDS = {*RUN["fields"]} - {*RUN["allowed"], *RUN["declared"]}
# The current task as written, before templates are evaluated. A run has one host, so it executes one task at a time.
NAMES = VALUES = ROLE_NAMES = frozenset()
# True if the name of its module is a template.
HAS_COMPUTED_ACTION = False
# True if the task sets facts, rather than a module that gathers them; and if `include_vars` has a computed name.
SETS_FACTS = HAS_COMPUTED_NAME = False
# Variables of connections, users and interpreters that Ansible reads without a plugin.
CONNECTION = {name for names in C.MAGIC_VARIABLE_MAPPING.values() for name in names} | set(C.COMMON_CONNECTION_VARS)
CONNECTION_PATTERN = re.compile(r"ansible_become(_\w+)?|ansible_\w+_interpreter")
# The project, and the folders with its roles.
PROJECT = os.path.realpath(RUN["project"])
ROLES = {os.path.join(PROJECT, "roles")}
# Roles in use, folders of playbooks, and other files with literal names.
USED, PLAYS, NAMED = set(), set(), set()
# Files that tasks include under literal names. Tasks may have written them, so they are not decrypted.
INCLUDED = set()
# Folders of a role or play with tasks, variables and templates, and those of a role that only literal names refer to.
SOURCES = {"defaults", "files", "handlers", "meta", "tasks", "templates", "vars"}
PLAY_SOURCES = SOURCES | {"group_vars", "host_vars", "playbooks"}
TESTS = {"molecule", "tests"}
# Files that contain passwords of vaults.
PASSWORDS = filter(None, [C.DEFAULT_VAULT_PASSWORD_FILE, *C.DEFAULT_VAULT_IDENTITY_LIST])
PASSWORDS = {os.path.realpath(os.path.expanduser(path.rpartition("@")[2])) for path in PASSWORDS}
MAX_TEXTS, MAX_TEXT = 10000, 1 << 22
ENCRYPTED = b"$ANSIBLE_VAULT"
PASSWORD_TERM = re.compile(r"""password\\?['"]\s*,\s*\\?['"]([^'"{}\s\\]+)""")
# Arguments of modules that name files to read, those that only do so for some modules, and these modules.
READ = {"local_path", "src", "values_files"}
NAMES_OF_PATHS = {"file", "path", "paths"}
READERS = {"archive", "include_vars", "read_csv", "slurp", "xml"}
# Modules that write to `path` or `dest`, and other arguments that name files. Those of a container do not.
WRITERS = {*("acl", "assemble", "blockinfile", "copy", "fetch", "file", "get_url", "ini_file", "lineinfile", "replace")}
WRITERS |= {"template", "unarchive"}
OTHER_PATHS = re.compile(
    r"(?!remote_)(\w+_)?(cert|chdir|creates|dest|dirs?|directory|files?|folder|kubeconfig|paths?|removes)"
)
# Modules that name no files, but may set variables under any name.
NO_FILES = {"add_host", "assert", "debug", "fail", "group_by", "set_fact", "set_stats"}
# URLs of files as Python's urllib reads them.
FILE_URL = re.compile(r"(?i)[\s<]*(url:)*\s*(local_)?file:\S")
# Modules and lookups that run programs.
COMMANDS = {"command", "expect", "lines", "pipe", "raw", "script", "shell"}
# Folders with programs and data of the system.
SYSTEM = {*("/bin", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/sbin", "/usr")}
READABLE_SYSTEM = SYSTEM | {"/etc", "/opt", "/proc", "/sys", os.path.realpath("/etc/resolv.conf")}
# The state of helm that exists before the run.
HELM = {"~/.config/helm", "~/.local/share/helm"}
DEVICES = {"/dev/" + name for name in ("full", "null", "ptmx", "pts", "random", "shm", "tty", "urandom", "zero")}
DENIED = re.compile(r"""Permission denied: b?\\?['"]([^'"\\]+)|([^\s:'"]+)['"]?: Permission denied""")
# Paths and names that the author wrote, and the files with them.
LITERALS = flyball_literals.Literals()
READ_FILES = set()
# True while YAML is loaded, and while a file is read that must not be decrypted.
LOADS = RAW = False


def add_known(known, path):
    known.update((path, os.path.realpath(path)))


for path in [*RUN["named"], RUN["runs"]]:
    add_known(USED if os.path.isdir(path) else NAMED, path)
if os.path.isfile(RUN["runs"]):
    add_known(PLAYS, os.path.dirname(RUN["runs"]))
if is_within(os.path.dirname(RUN["runs"]), PROJECT) and os.path.isdir(RUN["runs"]):
    ROLES.add(os.path.dirname(RUN["runs"]))


# Limits of each process of the run. The data of a process is the memory that it may write to.
LIMITS = {
    resource.RLIMIT_DATA: 1 << 30,
    resource.RLIMIT_CPU: 600,
    resource.RLIMIT_FSIZE: 256 << 20,
    resource.RLIMIT_CORE: 0,
}


def limit():
    for kind, value in LIMITS.items():
        before = resource.getrlimit(kind)[1]
        value = value if before == resource.RLIM_INFINITY else min(value, before)
        resource.setrlimit(kind, (value, value))
    # If memory is scarce, the run ends, not the operator.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


limit()


# Ansible asks for the results of a task at this interval of seconds. By default it does so a thousand times per second,
# which takes a tenth of the CPU time of a run.
POLL_INTERVAL = 0.01
C.DEFAULT_INTERNAL_POLL_INTERVAL = max(C.DEFAULT_INTERNAL_POLL_INTERVAL, POLL_INTERVAL)


def is_template(value):
    return "{{" in value or "{%" in value


def note(task):
    global NAMES, VALUES, ROLE_NAMES, SETS_FACTS, HAS_COMPUTED_ACTION, HAS_COMPUTED_NAME
    # Names of an earlier task must not be allowed if this one cannot be read.
    NAMES, VALUES, ROLE_NAMES, SETS_FACTS, HAS_COMPUTED_ACTION, HAS_COMPUTED_NAME = set(), set(), set(), True, True, True
    # Variables of included tasks; modules have parameters of this name.
    applied = task.args.get("apply")
    applied = applied.get("vars") if isinstance(applied, dict) else None
    applied = [*map(str, applied)] if isinstance(applied, dict) else []
    NAMES = {*map(str, task.args), *applied, str(task.register), "ansible_failed_task", "ansible_failed_result"}
    VALUES = {*map(str, task.args.values())}
    ROLE_NAMES = {str(task.args.get(name)) for name in ("name", "role")}
    HAS_COMPUTED_ACTION = is_template(task.action)
    SETS_FACTS = task.action.rpartition(".")[2] == "set_fact" or HAS_COMPUTED_ACTION
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
    applied = self.args.get("apply")
    variables = applied.get("vars") or {} if isinstance(applied, dict) else {}
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
    return explain(original(self, *args, **kwargs))


def run_task(original, self):
    result = original(self)
    # The message of a loop names no reason.
    for item in result.get("results") or [] if result.get("failed") else []:
        if isinstance(item, dict) and item.get("failed") and not item.get("_ansible_no_log"):
            result["msg"] = item.get("msg")
            break
    return result


def explain(result):
    """Adds the remedy to an error of the kernel."""
    if isinstance(result, dict) and result.get("failed"):
        names = ("message", "msg", "stderr", "module_stderr", "module_stdout", "exception")
        texts = (str(result.get(name) or "") for name in names)
        denied = next(filter(None, map(DENIED.search, texts)), None)
        if denied and IS_RESTRICTED:
            path = (denied[1] or denied[2])[-200:]
            failed = str(result.pop("message", None) or result.get("msg") or "the task failed")[:1000]
            result["msg"] = "%s: runs may not access %r: write the path literally in a task of the role" % (failed, path)
    return result


def get_handler(original, self, *args, **kwargs):
    action = self._task.action
    if HAS_COMPUTED_ACTION:
        check_name_of_plugin("module", action)
    arguments = self._task.args
    if last(action) not in NO_FILES and isinstance(arguments, dict):
        check_arguments(self, last(action), arguments)
    return original(self, *args, **kwargs)


def get_lookup(original, name, *args, **kwargs):
    check_name_of_plugin("lookup", name)
    return original(name, *args, **kwargs)


def check_name_of_plugin(kind, name):
    """Rejects names of modules and lookups that the author did not write: users must have chosen them."""
    literals, found = read_literals(), last(str(name))
    # Loops such as `with_dict` use a lookup without its name as a word.
    if found not in literals.used and (found in COMMANDS or found not in literals.words):
        raise AnsibleError(
            "the %s %r has a computed name: use a task with its literal name, and a condition" % (kind, str(name)[:64])
        )


def open_url(original, self, method, url, *args, **kwargs):
    check_url(url)
    return original(self, method, url, *args, **kwargs)


def check_url(url):
    if isinstance(url, str) and FILE_URL.match(url):
        raise AnsibleError("the URL %r is that of a file: use a path" % url[:200])


def get_option(original, self, config, cfile=None, plugin_type=None, plugin_name=None, keys=None, variables=None, *args, **kwargs):
    if variables:
        # Plugins other than connections have options under any name.
        option = self.get_configuration_definitions(plugin_type, plugin_name).get(config) or {}
        for name in [variable["name"] for variable in option.get("vars") or []]:
            # Ansible sets those of connections itself after they were checked, such as `ansible_host`.
            if name in variables and name not in CONNECTION and is_untrusted(name):
                reject_name("a task", name)
            if name in variables and name in FIELDS:
                raise AnsibleError(
                    "the field %r sets the option %r of the plugin %s: add the variable to the defaults of the role, "
                    "or to allowVariables in watches.yaml" % (name[:64], config, plugin_name or "ansible")
                )
    return original(self, config, cfile, plugin_type, plugin_name, keys, variables, *args, **kwargs)


def is_temporary(path):
    found = os.path.realpath(path)
    return is_within(found, TEMPORARY) or is_within(found, os.path.join(HOME, "async"))


def is_private(path):
    found = os.path.realpath(path)
    if found in PASSWORDS or is_within(found, RUNS) and not is_within(found, OWN):
        return True
    first = os.path.relpath(found, OWN).split(os.sep)[0]
    return first in INITIAL and not is_temporary(found) and found not in READABLE


def is_inside(path):
    """Returns true for files with tasks, variables and templates of roles in use, and of playbooks."""
    return belongs(path, lambda first: first in SOURCES)


def is_readable(path):
    """The same for files that are not evaluated, in all folders of these roles."""
    return belongs(path, lambda first: first not in TESTS and not first.startswith("."))


def belongs(path, is_in_role):
    known = {os.path.realpath(path)}
    # Tasks write the other files of the run.
    if any(is_within(path, OWN) for path in known):
        return known <= READABLE
    # The project may contain links; `..` after a link refers to the parent of its target.
    if ".." not in path.split(os.sep):
        known.add(os.path.abspath(path))
    return (
        any(is_in_role(first_below(path, role)) for path in known for role in USED if is_within(path, role))
        or any(first_below(path, play) in PLAY_SOURCES for path in known for play in PLAYS)
        or not known.isdisjoint(NAMED)
    )


def first_below(path, folder):
    return os.path.relpath(path, folder).split(os.sep)[0]


def is_source(path):
    """Returns true for files that the author wrote and named, or that belong to a role in use."""
    return is_inside(path) or is_within(os.path.realpath(path), PROJECT) and is_literal(path)


def check(path, is_allowed):
    if is_private(path):
        raise AnsibleError("%r is a file of the run or the password of a vault: tasks must not read it" % path[-200:])
    if not is_allowed(path):
        raise AnsibleError("%r is outside of the project and was loaded under a computed name: use a literal path" % path[-200:])


def check_write(path):
    if not is_writable(path):
        raise AnsibleError(
            "%r is neither a temporary file of the run nor below a literal path of a task: write the path or its folder "
            "literally in the task, outside of the project" % path[-200:]
        )


def is_writable(path):
    """Returns true for temporary files, and files below paths that the author wrote, except programs and the project."""
    found, literals = os.path.realpath(path), read_literals()
    if is_temporary(found) or found == os.devnull:
        return True
    written = literals.written | literals.folders | literals.variables
    return not any(is_within(found, folder) for folder in PROTECTED) and any(
        is_within(found, folder) and not is_broad(folder) for folder in written
    )


def is_broad(folder):
    """Returns true for folders that contain too much, such as secrets."""
    closed = {os.path.realpath(os.path.expanduser("~")), *SECRETS}
    return folder == "/" or any(is_within(other, folder) for other in closed)


def check_read(path):
    check(path, lambda path: is_temporary(path) or is_readable(path) or is_literal(path))


def texts():
    """Returns files of roles and playbooks with their texts, and the folders that their paths may be relative to."""
    roles = {os.path.join(folder, name) for folder in ROLES if os.path.isdir(folder) for name in os.listdir(folder)}
    found = [entry for folder in sorted(roles | USED) for entry in texts_of(folder, "meta", False)]
    found += [entry for folder in sorted(PLAYS) for entry in texts_of(folder, "playbooks", True)]
    found += [entry for file in sorted(NAMED) for entry in read_text(file, (os.path.dirname(file),))]
    return found[:MAX_TEXTS]


@functools.lru_cache(None)
def texts_of(folder, last, is_play):
    bases = (folder, *(os.path.join(folder, name) for name in sorted(SOURCES)))
    names = [name for name in os.listdir(folder) if is_play and os.path.isfile(os.path.join(folder, name))]
    # It names the password of the vault.
    files = [os.path.join(folder, name) for name in names if not name.startswith("watches.")]
    # Data of users or of workloads is in `files`.
    for name in sorted((PLAY_SOURCES if is_play else SOURCES) - {"files"}):
        for base, _, names in os.walk(os.path.join(folder, name)):
            files += [os.path.join(base, name) for name in names]
    return [entry for file in files[:MAX_TEXTS] for entry in read_text(file, (os.path.dirname(file), *bases))]


@functools.lru_cache(None)
def read_text(file, bases):
    if not file.endswith((".yml", ".yaml", ".j2", ".json")) or not os.path.isfile(file):
        return []
    with open(file, errors="replace") as opened:
        text = opened.read(MAX_TEXT)
    if file.endswith(".j2"):
        # The other text is that of workloads.
        text = "\n".join(re.findall(r"\{[{%].*?[%}]\}", text, re.DOTALL))
    return [(file, text, bases)]


def is_literal(path):
    # A path that the author wrote, within the project also in a text.
    found = os.path.realpath(path)
    literals = read_literals()
    return found in literals.paths or found in literals.variables or is_literal_in(path, len(USED), len(PLAYS))


@functools.lru_cache(None)
def is_literal_in(path, *_):
    known = {os.path.abspath(path), os.path.realpath(path)}
    absolute = {path for path in known if is_within(path, PROJECT)}
    return any(pattern_of(absolute, known, bases).search(text) for _, text, bases in texts())


def pattern_of(absolute, paths, bases):
    relative = {os.path.relpath(path, base) for path in paths for base in bases}
    relative = {path for path in relative if re.search(r"[./]", path) and re.search(r"\w", path)}
    # A parent of the project has no spelling, and an empty alternative would match any text.
    spellings = "|".join(map(re.escape, sorted(absolute | relative))) or "(?!)"
    # `{{ role_path }}` may be before it.
    return re.compile(r"(?:(?<![\w./-])|(?<=\}\}/))(?:%s)(?![\w./-])" % spellings)


def read_literals():
    """Returns the literals of all texts, and of files and roles of collections that these name."""
    update_literals(len(USED), len(PLAYS))
    return LITERALS


@functools.lru_cache(None)
def update_literals(*_):
    pending = texts()
    while pending and len(READ_FILES) < MAX_TEXTS:
        file, text, bases = pending.pop()
        if file in READ_FILES:
            continue
        READ_FILES.add(file)
        LITERALS.read(file, text)
        for name in {*re.findall(r"[\w./-]*/[\w.-]+\.ya?ml", text)}:
            for path in {os.path.normpath(os.path.join(base, name.lstrip("/"))) for base in bases}:
                if is_within(path, PROJECT) and os.path.isfile(path):
                    pending += read_text(path, (os.path.dirname(path), *bases))
        for name in {*re.findall(r"\b(\w+)\.(\w+)\.([\w.]+)", text)}:
            for folder in AnsibleCollectionConfig.collection_paths or ():
                role = os.path.join(folder, "ansible_collections", name[0], name[1], "roles", *name[2].split("."))
                pending += texts_of(role, "meta", False) if os.path.isdir(role) else []


def read_watches():
    for name in sorted(os.listdir(PROJECT)):
        if name.startswith("watches."):
            for _, text, _ in read_text(os.path.join(PROJECT, name), ()):
                LITERALS.read_watches(text)


def is_literal_role(name):
    # Simple names are ordinary words.
    if re.search(r"[./]", name):
        pattern = r"(?<![\w./-])%s(?![\w./-])"
    else:
        pattern = r"(?m)(?:\b(?:role|name):|^\s*-|[\[,])\s*['\"]?%s['\"]?\s*(?:[,}\]#]|$)"
    pattern = re.compile(pattern % re.escape(name))
    return any(pattern.search(text) for _, text, _ in texts())


def read_file(original, self, file_name, *args, **kwargs):
    global RAW
    path = self.path_dwim(os.fsdecode(file_name))
    if not LOADS:
        check_read(path)
        if is_encrypted(path) and not is_temporary(path):
            check(path, is_literal)
    # Other files contain data.
    before, RAW = RAW, not is_source(path)
    try:
        if RAW and original.__name__ == "get_real_file":
            return original(self, file_name, decrypt=False)
        return original(self, file_name, *args, **kwargs)
    finally:
        RAW = before


def is_encrypted(path):
    try:
        with open(path, "rb") as file:
            return file.read(len(ENCRYPTED)) == ENCRYPTED
    except OSError:
        return False


def decrypt(original, self, data, *args, **kwargs):
    return (data, True) if RAW else original(self, data, *args, **kwargs)


def find_file(original, self, paths, folder, *args, **kwargs):
    found = original(self, paths, folder, *args, **kwargs)
    # Temporary files are data.
    is_evaluated = folder in ("tasks", "templates", "vars")
    if is_evaluated:
        check(os.fsdecode(found), lambda path: not is_temporary(path))
    check_read(os.fsdecode(found))
    return found


def find_template(original, self, *args, **kwargs):
    source, path, is_current = original(self, *args, **kwargs)
    check(path, lambda path: not is_temporary(path))
    check_read(path)
    return source, path, is_current


def load_variables(original, self, *args, **kwargs):
    original(self, *args, **kwargs)
    READABLE.difference_update(VARIABLES)


def load_file(original, self, file_name, *args, **kwargs):
    global LOADS
    check(self.path_dwim(file_name), is_included)
    before, LOADS = LOADS, True
    try:
        return original(self, file_name, *args, **kwargs)
    finally:
        LOADS = before


def load_playbook(original, self, file_name, *args, **kwargs):
    path = os.path.join(self._loader.get_basedir(), file_name)
    if not is_within(os.path.realpath(path), OWN):
        name = collection_name(path)
        check(path, lambda path: is_source(path) or name and is_literal_role(name))
        add_known(NAMED, path)
        add_known(PLAYS, os.path.dirname(path))
    return original(self, file_name, *args, **kwargs)


def collection_name(path):
    """Returns the name of a playbook of a collection."""
    for folder in AnsibleCollectionConfig.collection_paths:
        parts = os.path.relpath(path, os.path.join(folder, "ansible_collections")).split(os.sep)
        if len(parts) > 3 and ".." not in parts and parts[2] == "playbooks":
            return ".".join([*parts[:2], *parts[3:-1], parts[-1].rpartition(".")[0]])
    return None


def load_role_path(original, self, role_name):
    found = original(self, role_name)
    # A literal path may refer to a file that did not exist when the operator started.
    if is_template(role_name) or role_name not in ROLE_NAMES:
        is_named = is_named_role(self, role_name, found[0])
        check(found[1], lambda path: is_named or is_role_of_project(path) or is_literal(path) and not is_parent(path))
    add_known(USED, found[1])
    return found


def is_parent(path):
    """Returns true for the project and its parents: as a role, they would make all files below them readable."""
    return is_within(PROJECT, os.path.realpath(path))


def is_named_role(self, role_name, found_name):
    if self._role_collection:
        return is_literal_role(found_name) or is_literal_role("%s.%s" % (self._role_collection, found_name))
    return not is_template(role_name) and is_literal_role(role_name)


def is_role_of_project(path):
    found = os.path.realpath(path)
    names = [os.path.join(folder, name) for folder in ROLES if os.path.isdir(folder) for name in os.listdir(folder)]
    return found in USED or any(os.path.realpath(name) == found for name in names)


def load_vars(original, self, filename, *args, **kwargs):
    global LOADS
    is_known = is_source(filename)
    allow_named(filename)
    check(filename, is_included)
    before, LOADS = LOADS, True
    try:
        failed, message, variables = original(self, filename, *args, **kwargs)
    finally:
        LOADS = before
    if not is_known:
        check_names("include_vars", variables)
    return failed, message, variables


def load_tasks(original, self, included_file, *args, **kwargs):
    allow_named(included_file._filename)
    return original(self, included_file, *args, **kwargs)


def allow_named(path):
    if not any(map(is_template, VALUES)):
        INCLUDED.add(os.path.realpath(path))


def is_included(path):
    return is_source(path) or os.path.realpath(path) in INCLUDED


def execute_module(original, self, module_name=None, module_args=None, *args, **kwargs):
    arguments = self._task.args if module_args is None else module_args
    check_arguments(self, last(module_name or self._task.action), arguments)
    return original(self, module_name, module_args, *args, **kwargs)


def check_arguments(self, name, arguments):
    # Other connections have other files.
    if self._connection.transport != "local":
        return
    for key, value in arguments.items():
        for text in flyball_literals.listed(value):
            check_url(text)
            # Modules split lists at commas, and evaluate variables of the environment.
            for path in map(str.strip, {text, *text.split(",")}):
                user, variables = os.path.expanduser, os.path.expandvars
                for path in {path, variables(user(path)), user(variables(path))}:
                    full = os.path.join(self._loader.get_basedir(), path)
                    check_argument(name, str(key), full, os.path.isabs(path))


def check_argument(name, key, path, is_absolute):
    if key == "dest" and (is_absolute or name in WRITERS) or key == "path" and name in WRITERS:
        check_write(path)
    elif not os.path.exists(path) or path == os.path.join(OWN, "kubeconfig") and key == "kubeconfig":
        return
    elif key in READ or key in NAMES_OF_PATHS and name in READERS:
        check_read(path)
    elif OTHER_PATHS.fullmatch(key):
        check(path, lambda path: is_writable(path) or is_readable(path))


def transfer_file(original, self, local_path, remote_path):
    check_read(os.fsdecode(local_path))
    return original(self, local_path, remote_path)


def fetch_file(original, self, in_path, out_path):
    check_read(os.path.join(OWN, os.path.expanduser(os.fsdecode(in_path))))
    check_write(os.fsdecode(out_path))
    return original(self, in_path, out_path)


def use_password(original, path, *args):
    if os.fsdecode(path) != os.devnull:
        check(os.path.realpath(os.fsdecode(path)), is_password)
    return original(path, *args)


def password_folders():
    """Creates folders of the run with which terms of the lookup begin, and returns those of all terms."""
    for _, text, _ in texts():
        for term in PASSWORD_TERM.findall(text):
            folder = os.path.realpath(os.path.join(OWN, os.path.dirname(os.path.expanduser(term))))
            if is_within(folder, OWN) and first_below(folder, OWN) not in INITIAL | {"."}:
                os.makedirs(folder, mode=0o700, exist_ok=True)
                yield folder
            elif not is_broad(folder) and not any(is_within(folder, other) for other in PROTECTED):
                yield folder


def is_password(path):
    """Returns true for a path that begins a term of the lookup, and for files below a folder that does."""
    for _, text, _ in texts():
        for term in PASSWORD_TERM.findall(text):
            written = os.path.realpath(os.path.join(OWN, os.path.expanduser(term)))
            if path == written:
                return True
            # New folders of a run contain nothing else.
            is_new = is_within(written, OWN) and written != OWN
            if term.endswith("/") and (os.path.dirname(path) == written or is_new and is_within(path, written)):
                return True
    return is_temporary(path) or is_literal(path)


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
wrap(TaskExecutor, "run", run_task)
wrap(TaskExecutor, "_get_action_handler_with_module_context", get_handler)
wrap(Request, "open", open_url)
wrap(ConfigManager, "get_config_value_and_origin", get_option)
wrap(DataLoader, "load_from_file", load_file)
wrap(DataLoader, "_decrypt_if_vault_data", decrypt)
# Lookups, and actions such as copy and template.
wrap(DataLoader, "_get_file_contents", read_file)
wrap(DataLoader, "get_real_file", read_file)
# Lookups and modules that open a file themselves, such as csvfile.
wrap(DataLoader, "path_dwim_relative_stack", find_file)
# Files that templates include.
wrap(FileSystemLoader, "get_source", find_template)
# Files that modules read.
wrap(ActionBase, "_execute_module", execute_module)
wrap(ActionBase, "_transfer_file", transfer_file)
wrap(connection_loader.get("ansible.builtin.local", class_only=True), "fetch_file", fetch_file)
for name in ("_get_lock", "_read_password_file", "_write_password_file"):
    wrap(sys.modules[lookup_loader.get("ansible.builtin.password", class_only=True).__module__], name, use_password)
wrap(lookup_loader, "get", get_lookup)
wrap(Playbook, "_load_playbook_data", load_playbook)
wrap(RoleDefinition, "_load_role_path", load_role_path)
wrap(StrategyBase, "_load_included_file", load_tasks)
wrap(action_loader.get("ansible.builtin.include_vars", class_only=True), "_load_files", load_vars)
sys.modules["flyball_guard"] = sys.modules[__name__]


def program_folders():
    """Returns folders with programs: those of Python, Ansible and collections."""
    yield from (sys.prefix, sys.base_prefix, sys.exec_prefix, *filter(os.path.isabs, sys.path))
    yield os.path.expanduser("~/.ansible")
    for name, definition in C.config.get_configuration_definitions().items():
        if definition.get("type") in ("path", "pathlist", "pathspec"):
            value = getattr(C, name, None)
            for path in flyball_literals.listed(value):
                if os.path.isabs(path) and not is_within(os.path.realpath(path), OWN):
                    yield path


def grants():
    """Returns the files that processes of the run may access, with their rights."""
    read, both = flyball_wall.READ, flyball_wall.READ | flyball_wall.WRITE
    without, literals = flyball_wall.without, read_literals()
    closed = {*PASSWORDS, *SECRETS, RUNS}
    for folder in {*READABLE_SYSTEM, *PROTECTED - closed, *USED, *NAMED, *map(os.path.expanduser, HELM)}:
        yield from ((path, read) for path in without(folder, closed))
    yield from ((path, both) for path in DEVICES)
    # The names in it, but not the secret of the events.
    yield OWN, flyball_wall.READ_DIR
    yield from ((os.path.join(OWN, name), read) for name in os.listdir(OWN) if name != "run.json")
    yield from ((path, both) for path in (TEMPORARY, HOME, *password_folders()))
    # The files of Ansible that a worker has imported for modules.
    memory = sys.modules.get("flyball_memory")
    yield from ((path, read) for path in (memory.ARCHIVES if memory else ()))
    # Files that the operator passes.
    for name, value in os.environ.items():
        paths = value.split(":") if name.endswith("PATH") else [value] if os.path.isfile(value) else []
        yield from ((path, read) for path in filter(os.path.isabs, paths) for path in without(path, PASSWORDS))
    for path in literals.paths | literals.variables | literals.folders:
        is_secret = any(is_within(path, folder) for folder in SECRETS)
        if not is_broad(path) and not (is_secret and path in literals.folders):
            yield from ((path, read) for path in without(path, PASSWORDS if is_secret else {*PASSWORDS, *SECRETS}))
    for path in literals.written | literals.variables | literals.folders:
        # New files, and those that are replaced by new ones, need the rights of their folder.
        is_new = path in literals.replaced or path not in literals.variables and not os.path.exists(path)
        while is_new and not os.path.isdir(path):
            path = os.path.dirname(path)
        if not is_broad(path):
            # Temporary files may be in the same folder as the runs.
            yield from ((path, both) for path in without(path, PROTECTED - {RUNS}))


# Never writable for users.
PROTECTED = {os.path.realpath(path) for path in {*SYSTEM, *program_folders(), PROJECT, RUNS, *SECRETS}} - {"/"}
# Programs have their state in the run.
os.environ.setdefault("XDG_CACHE_HOME", os.path.join(HOME, "cache"))
read_watches()
IS_RESTRICTED = flyball_wall.restrict(grants())


class InventoryModule(BaseInventoryPlugin):
    NAME = "flyball_guard"

    def verify_file(self, path):
        return False
