# Runs modules of local connections in forks of the process that has imported their libraries, instead of interpreters.
import atexit
import contextlib
import functools
import gc
import os
import selectors
import shlex
import signal
import sys
import threading
import traceback
import types

import flyball_memory

IMPORT_SYSTEM = []
REMOVED = []


def note_import_system():
    """Saves the state that processes of modules start with, before Ansible changes it."""
    IMPORT_SYSTEM[:] = [list(part) for part in (sys.meta_path, sys.path_hooks, sys.path)]


def replace_streams(out, err):
    """Sets the standard streams of a new process, and closes all other files."""
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2:
            with contextlib.suppress(OSError):
                os.close(fd)
    sys.stdin = os.fdopen(0, "r", closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)


def exit_code(program):
    """Runs a program like an interpreter, and returns the exit code."""
    code = 0
    try:
        program()
    except SystemExit as exit:
        code = exit.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code & 255


def fork_modules():
    """Changes the local connections of this process."""
    from ansible.plugins.loader import connection_loader

    get = connection_loader.get_with_context

    @functools.wraps(get)
    def get_with_context(*args, **kwargs):
        found = get(*args, **kwargs)
        # Neither a class, nor a plugin of the project with this name.
        is_class = isinstance(found.object, type)
        if not is_class and getattr(found.object, "ansible_name", None) == "ansible.builtin.local":
            found.object.is_pipelining_enabled = functools.partial(is_pipelining_enabled, found.object)
            found.object.exec_command = functools.partial(exec_command, found.object, found.object.exec_command)
        return found

    connection_loader.get_with_context = get_with_context


def is_pipelining_enabled(connection, wrap_async=False):
    """Returns true if a module is passed on standard input, and not as a file."""
    import ansible.constants as C

    return not (wrap_async or connection.become or C.DEFAULT_KEEP_REMOTE_FILES)


def exec_command(connection, original, cmd, in_data=None, sudoable=True):
    # The same interpreter, with a module as its standard input, and without changes to the environment.
    if cmd != "/bin/sh -c " + shlex.quote(sys.executable + " && sleep 0") or not in_data or connection.become:
        return original(cmd, in_data=in_data, sudoable=sudoable)
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.chdir(connection.cwd)
            replace_streams(out_end, err_end)
            code = exit_code(lambda: run_module(in_data))
        finally:
            os._exit(code)
    os.close(out_end)
    os.close(err_end)
    output = {out: b"", err: b""}
    with selectors.DefaultSelector() as selector:
        for fd in output:
            selector.register(fd, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                data = os.read(key.fd, 1 << 16)
                output[key.fd] += data
                if not data:
                    selector.unregister(key.fd)
                    os.close(key.fd)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    # A shell has this exit code after a signal.
    return code if code >= 0 else 128 - code, output[out], output[err]


def run_module(source):
    """Runs a module as the program of an interpreter without Ansible: the module contains its own part of Ansible."""
    atexit._clear()
    for number in (signal.SIGALRM, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    # Neither destroyed nor searched for garbage, since that would copy their memory.
    REMOVED.append(remove_ansible())
    gc.freeze()
    recorders = [finder for finder in sys.meta_path if finder is flyball_memory.Imports]
    restore_import_system()
    sys.meta_path[:0] = [*recorders, flyball_memory.Library]
    sys.argv = [""]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        exec(compile(source, "<stdin>", "exec"), vars(main))
    finally:
        flyball_memory.record_library()


def remove_ansible():
    """Removes the imported modules of Ansible, and returns them."""
    return {name: sys.modules.pop(name) for name in names_of_ansible()}


def names_of_ansible():
    return [name for name in sys.modules if name.partition(".")[0] in ("ansible", "ansible_collections", "flyball_guard")]


def restore_import_system():
    sys.meta_path[:], sys.path_hooks[:], sys.path[:] = IMPORT_SYSTEM
    sys.path_importer_cache.clear()


@contextlib.contextmanager
def without_ansible():
    """Has the modules and the import system of an interpreter without Ansible."""
    before = [list(part) for part in (sys.meta_path, sys.path_hooks, sys.path)]
    removed = remove_ansible()
    restore_import_system()
    try:
        yield
    finally:
        remove_ansible()
        sys.modules.update(removed)
        sys.meta_path[:], sys.path_hooks[:], sys.path[:] = before
        sys.path_importer_cache.clear()
