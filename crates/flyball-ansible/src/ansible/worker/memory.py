# Results for inputs that are the same in each run: Ansible's own YAML and Python sources.
#
# The worker records the inputs of first runs, and computes their results once; those of modules, which need Ansible's
# plugin loaders, are recorded themselves. Processes of runs only read them.
import _imp
import contextlib
import fcntl
import functools
import importlib
import os
import pickle
import sys
import zipimport

import yaml

PARSED = {}
COMPILED = {}
MODULE_UTILS = {}
INPUTS = {}
# The file for the inputs of a first run.
RECORD = None
parse = yaml.load


def install():
    """Has to be called before the modules of Ansible are imported."""
    yaml.load = load
    # Python's importer of zipped modules, and Ansible's search for the imports of a module.
    zipimport.compile = compiled
    from ansible.executor import module_common

    module_common.compile = compiled
    module_common.recursive_finder = functools.partial(find_module_utils, module_common.recursive_finder)


def load(stream, Loader):
    if not isinstance(stream, (str, bytes)):
        return parse(stream, Loader)
    # The text has tags, such as its file.
    key = Loader, pickle.dumps(stream)
    if key in PARSED:
        # The caller may change it; each process has its own.
        return PARSED.pop(key)
    record(fill_parsed, key)
    return parse(stream, Loader)


def fill_parsed(loader, text):
    PARSED[loader, text] = parse(pickle.loads(text), loader)


def compiled(source, filename, mode, flags=0, dont_inherit=True):
    key = bytes(source) if isinstance(source, bytes) else str(source), mode, flags
    if key not in COMPILED:
        record(fill_compiled, key)
        return compile(source, filename, mode, flags, dont_inherit)
    if not flags:
        _imp._fix_co_filename(COMPILED[key], filename)
    return COMPILED[key]


def fill_compiled(source, mode, flags):
    COMPILED[source, mode, flags] = compile(source, "<unknown>", mode, flags, dont_inherit=True)


def find_module_utils(original, name, module_fqn, source, zip, *args):
    """Writes the imports of a module to a zip file, and returns its metadata."""
    if any(getattr(arg, "module_names", None) or getattr(arg, "debugger_enabled", None) for arg in args):
        return original(name, module_fqn, source, zip, *args)
    key = name, module_fqn, bytes(source), search_paths()
    if key in MODULE_UTILS:
        files, metadata = MODULE_UTILS[key]
        for info, content in files:
            zip.writestr(pickle.loads(info), content)
        return pickle.loads(metadata)
    files, write = [], zip.writestr

    def written(info, content, *args, **kwargs):
        files.append((pickle.dumps(info), content.encode() if isinstance(content, str) else bytes(content)))
        return write(info, content, *args, **kwargs)

    zip.writestr = written
    try:
        metadata = original(name, module_fqn, source, zip, *args)
    finally:
        del zip.writestr
    record(fill_module_utils, (key, tuple(files), pickle.dumps(metadata)))
    return metadata


def fill_module_utils(key, files, metadata):
    MODULE_UTILS[key] = files, metadata


def search_paths():
    """Returns the folders in which Ansible searches the imports of modules: projects may have some of their own."""
    from ansible.plugins.loader import module_utils_loader
    from ansible.utils.collection_loader import AnsibleCollectionConfig

    own = filter(os.path.isdir, module_utils_loader._get_paths(subdirs=False))
    playbooks = (os.path.join(path, "collections") for path in AnsibleCollectionConfig.playbook_paths or [])
    collections = [*playbooks, *(AnsibleCollectionConfig.collection_paths or [])]
    collections = (path for path in collections if os.path.isdir(os.path.join(path, "ansible_collections")))
    return tuple(own), tuple(collections)


def fill_imports(name):
    # Collections need their importer, and plugins of the project may have the same names as those of Ansible.
    is_plugin = name.startswith("ansible.plugins.") and name.count(".") > 2
    if not is_plugin and not name.startswith("ansible_collections"):
        importlib.import_module(name)


class Imports:
    """Records the imports of a first run."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        record(fill_imports, (name,))


def record(function, arguments):
    if RECORD:
        with open(RECORD, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(pickle.dumps((function, arguments)))


@contextlib.contextmanager
def recorded(path):
    global RECORD
    RECORD = path
    sys.meta_path.insert(0, Imports)
    yield
    sys.meta_path.remove(Imports)
    RECORD = None
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        while file.peek(1):
            INPUTS[pickle.load(file)] = None


def fill():
    for function, arguments in INPUTS:
        with contextlib.suppress(Exception):
            function(*arguments)
    INPUTS.clear()
