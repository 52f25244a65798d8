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
import zipfile
import zipimport
from importlib.machinery import ModuleSpec, SourceFileLoader

import yaml

PARSED = {}
COMPILED = {}
# Code by path.
CODE = {}
MODULE_UTILS = {}
# The part of Ansible that modules contain, as imported modules, each with its file in the zip file of a module.
LIBRARY = {}
# The zip files from which its modules import others.
ARCHIVES = []
# The importers of modules that it creates without files, such as `six.moves`.
IMPORTERS = []
INPUTS = {}
# The file for the inputs of a first run.
RECORD = None
parse = yaml.load
read_code = SourceFileLoader.get_code


def install():
    """Has to be called before the modules of Ansible are imported."""
    yaml.load = load
    SourceFileLoader.get_code = get_code
    # Sources without bytecode, such as the plugins in the folder of each run.
    SourceFileLoader.source_to_code = lambda self, data, path, **_: compiled(data, path, "exec")
    # Python's importer of zipped modules, Ansible's importer of collections, and its search for the imports of a module.
    zipimport.compile = compiled
    from ansible.executor import module_common
    from ansible.utils.collection_loader import _collection_finder

    module_common.compile = _collection_finder.compile = compiled
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


def get_code(loader, name):
    path = loader.get_filename(name)
    if path in CODE:
        return CODE[path]
    record(fill_code, (path,))
    return read_code(loader, name)


def fill_code(path):
    if os.path.exists(path):
        CODE[path] = read_code(SourceFileLoader("", path), "")


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


def record_library():
    """Records the parts of Ansible that a module has imported from its zip file."""
    for archive, content in Library.recorded:
        loaders = [(name, getattr(module, "__loader__", None)) for name, module in sys.modules.items()]
        names = [name for name, loader in loaders if getattr(loader, "archive", None) == archive]
        record(fill_library, (tuple(names), content))


def fill_library(names, content):
    import flyball_modules

    # Python's importer of zip files does not read the same path again.
    archive = os.path.join(os.path.dirname(os.path.abspath(__file__)), "library-%d.zip" % len(LIBRARY))
    ARCHIVES.append(archive)
    with open(archive, "wb") as file:
        file.write(content)
    with flyball_modules.without_ansible():
        sys.path.insert(0, archive)
        entries = entries_of(archive)
        provide(archive, entries)
        before = list(sys.meta_path)
        for name in names:
            importlib.import_module(name)
        found = dict(LIBRARY)
        # Packages are before their modules.
        for name in sorted({*flyball_modules.names_of_ansible()} - {*LIBRARY}):
            module = sys.modules[name]
            is_file = isinstance(getattr(module, "__loader__", None), zipimport.zipimporter)
            file = os.path.relpath(module.__file__, archive) if is_file else found[name.rpartition(".")[0]][1]
            found[name] = module, file, entries[file]
        # All of it, or nothing.
        LIBRARY.update(found)
        IMPORTERS.extend(importer for importer in sys.meta_path if importer not in before)


def entries_of(archive):
    with zipfile.ZipFile(archive) as file:
        return {entry.filename: (entry.file_size, entry.CRC) for entry in file.infolist()}


def provide(archive, entries):
    """Provides the imported parts of Ansible that a zip file contains, if it contains the same sources."""
    found = {name: part for name, part in LIBRARY.items() if part[1] in entries}
    if any(entries[file] != entry for _, file, entry in found.values()):
        return
    for name, (module, *_) in found.items():
        if getattr(module, "__path__", None):
            # Others are imported from the zip file.
            module.__path__ = [os.path.join(archive, *name.split("."))]
        sys.modules[name] = module
    sys.meta_path.extend(IMPORTERS)


class Library:
    """Provides the imported parts of Ansible to a module whose zip file contains the same sources."""

    # The zip file of the module of a first run, which it removes.
    recorded = []

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != "ansible":
            return None
        # Python skips the next importer, which is not one of files.
        sys.meta_path.remove(cls)
        archive = sys.path[0]
        if not os.path.isfile(archive):
            return None
        if RECORD:
            with open(archive, "rb") as file:
                cls.recorded.append((archive, file.read()))
            return None
        provide(archive, entries_of(archive))
        return ModuleSpec(name, cls, is_package=True) if name in sys.modules else None

    @staticmethod
    def create_module(spec):
        return LIBRARY[spec.name][0]

    @staticmethod
    def exec_module(module):
        pass


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
