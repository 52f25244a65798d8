# Paths and names that stand literally in tasks, variables and templates: those that the author of a role chose.
import os
import re

import yaml

# Secrets of the operator. Variables and templates name them for workloads.
SECRETS = {os.path.realpath(path) for path in ("/run/secrets", "/var/run/secrets")}
# Parts of a task or play that contain others, those that are expressions without braces, and those without paths.
INNER = {"always", "block", "handlers", "post_tasks", "pre_tasks", "rescue", "roles", "tasks"}
EXPRESSIONS = {"changed_when", "failed_when", "that", "until", "when"}
NAMES = {"debug", "fail", "name", "register", "tags"}
# Arguments with content: a path in it belongs to a workload.
CONTENT = {"block", "body", "content", "definition", "inline", "line", "msg", "replace", "resource_definition"}
# Modules that only read, and arguments that name files to read.
READERS = {"find", "import_playbook", "import_role", "import_tasks", "include_role", "include_tasks", "include_vars"}
READERS |= {"roles", "slurp", "stat", "vars_files", "wait_for"}
READ = {"local_path", "src", "values_files"}
MAX_DEPTH = 32

EXPRESSION = re.compile(r"\{[{%].*?[%}]\}", re.DOTALL)
QUOTED = re.compile(r"""(["'])(~?/[^"'\n{}]*)\1""")
# A path in a command, and the start of a template after it.
WORD = re.compile(r"""(?:^|(?<=[\s=,<>"'(]))(~?/[\w./@%+,:-]*)(\{[{%])?""")
LOOKUP = re.compile(r"""(?:lookup|query|q)\s*\(\s*["']([\w.]+)["']|\bwith_(\w+)""")


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """Ignores tags, such as those of encrypted values."""


Loader.add_multi_constructor("!", lambda loader, _, node: getattr(node, "value", None) if node.id == "scalar" else None)


class Literals:
    def __init__(self):
        # Paths, those of them that tasks may write, those that modules may replace, and folders before the first
        # template of an argument.
        self.paths, self.written, self.replaced, self.folders = set(), set(), set(), set()
        # Paths that are values of variables, or constants in templates.
        self.variables = set()
        # Names of modules and lookups where they are used, and all words.
        self.used, self.words = set(), set()

    def read(self, file, text):
        """Reads a file with tasks or variables, or the expressions of a template."""
        self.read_names(text)
        if file.endswith(".j2"):
            self.add_variables(quoted(text))
            return
        for document in documents(text):
            if isinstance(document, list):
                self.read_tasks(document)
            else:
                self.read_variables(document)

    def read_watches(self, text):
        """Reads the variables in `watches.yaml`."""
        self.read_names(text)
        for entries in documents(text):
            for entry in entries if isinstance(entries, list) else ():
                self.read_variables(entry.get("vars") if isinstance(entry, dict) else None)

    def read_names(self, text):
        self.words.update(map(last, re.findall(r"[\w.]+", text)))
        self.used.update(last("".join(names)) for names in LOOKUP.findall(text))

    def read_variables(self, values):
        for value in values.values() if isinstance(values, dict) else ():
            self.add_variables(path for path in listed(value) if is_path(path) and "{" not in path)
            for text in all_texts(value, MAX_DEPTH):
                for expression in EXPRESSION.findall(text):
                    self.add_variables(quoted(expression))

    def read_tasks(self, tasks):
        for task in tasks:
            if isinstance(task, str):
                self.add(task, False)
            for key, value in task.items() if isinstance(task, dict) else ():
                key = last(str(key))
                self.used.add(key)
                if key == "vars":
                    self.read_variables(value)
                elif key in INNER and isinstance(value, list):
                    self.read_tasks(value)
                if key in ("action", "local_action"):
                    named = value.get("module") if isinstance(value, dict) else value
                    self.used.update(map(last, str(named).split()[:1]))
                self.read_value(key, value)

    def read_value(self, key, value):
        """Reads a keyword of a task, or the arguments of a module."""
        for text in all_texts(value, MAX_DEPTH) if key not in INNER and key != "vars" else ():
            for expression in [text] if key in EXPRESSIONS else EXPRESSION.findall(text):
                self.add_all(quoted(expression), False)
        if key in NAMES:
            return
        is_written = key not in READERS
        for text in listed(value):
            self.add_command(text, is_written)
        # Items of a loop have the form of arguments.
        for arguments in value if isinstance(value, list) else [value]:
            for name, argument in arguments.items() if isinstance(arguments, dict) and key not in INNER else ():
                for text in listed(argument) if name not in CONTENT else ():
                    if name in ("_raw_params", "argv", "cmd"):
                        self.add_command(text, is_written)
                    else:
                        self.add(text, is_written and name not in READ)
                        if is_written and name not in READ and is_path(text):
                            self.replaced.update(spellings(text))
                    if name in EXPRESSIONS:
                        self.add_all(quoted(text), False)

    def add_command(self, text, is_written):
        for path, template in WORD.findall(text):
            self.add(path + template, is_written)

    def add_all(self, paths, is_written):
        for path in paths:
            self.add(path, is_written)

    def add(self, text, is_written):
        path, template, _ = text.partition("{")
        if not is_path(text):
            return
        if template:
            self.folders.update(spellings(os.path.dirname(path)))
        else:
            self.paths.update(spellings(path))
            if is_written:
                self.written.update(spellings(path))

    def add_variables(self, paths):
        for path in map(spellings, paths):
            if not any(is_within(found, secrets) for found in path for secrets in SECRETS):
                self.variables.update(path)


def is_within(path, folder):
    return path == folder or path.startswith(os.path.join(folder, ""))


def spellings(path):
    path = os.path.abspath(os.path.expanduser(path))
    return {path, os.path.realpath(path)}


def documents(text):
    try:
        return [*yaml.load_all(text, Loader)]
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        return []


def last(name):
    return name.rpartition(".")[2]


def is_path(text):
    return text.startswith(("/", "~/")) and "\n" not in text and "\0" not in text


def quoted(expression):
    return [path for _, path in QUOTED.findall(expression)]


def listed(value):
    return [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]


def all_texts(value, depth):
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)) and depth:
        for part in value.values() if isinstance(value, dict) else value:
            yield from all_texts(part, depth - 1)
