# The worker: imports Ansible once, and forks a process for each run of ansible-playbook.
#
# Standard input is a socket of packets. A packet is a request in JSON, with three file descriptors: the channel of the
# run, its standard output and its standard error. The worker forks a supervisor, which forks the leader of the run.
# The supervisor kills all processes of the run when the leader ends or the channel is closed, and then writes the wait
# status of the leader to the channel. The worker itself runs no playbook, so runs have no state in common.
import array
import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ENVIRONMENT = dict(os.environ)
# Ansible creates a folder when it is imported.
os.environ.update(ANSIBLE_LOCAL_TEMP=HERE, TMPDIR=HERE)
IMPORTED = dict(os.environ)

import flyball_memory
import flyball_modules
from flyball_modules import exit_code, replace_streams

# Runs do not import the modules of the worker.
sys.path[:] = [path for path in sys.path if path != HERE]

# See prctl(2).
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
MAX_REQUEST_BYTES = 1 << 18
KILL_SECONDS = 10
libc = ctypes.CDLL(None, use_errno=True)


def prctl(option, value):
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")


def children():
    """Returns the IDs of this process's children, including zombies."""
    found, own = [], os.getpid()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % name, "rb") as file:
                parent = file.read().rpartition(b")")[2].split()[1]
        except OSError:
            continue  # It has ended.
        if int(parent) == own:
            found.append(int(name))
    return found


def kill(pids):
    # Children keep their IDs until they are reaped. Those of other users cannot be killed.
    for pid in pids:
        with contextlib.suppress(PermissionError):
            os.kill(pid, signal.SIGKILL)


class Worker:
    def __init__(self, requests):
        self.requests = requests
        self.supervisors = set()

    def serve(self):
        # The processes of a supervisor that was killed become children of the worker.
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        signal.signal(signal.SIGCHLD, self.reap)
        while True:
            packet, fds = receive(self.requests)
            if not packet:
                return
            # A supervisor is known before it is reaped.
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
            pid = os.fork()
            if pid == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
                self.requests.close()
                supervise(packet, fds)
            self.supervisors.add(pid)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            for fd in fds:
                os.close(fd)

    def reap(self, *_):
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self.supervisors.discard(ended[0])
                if ended[1]:
                    kill(set(children()) - self.supervisors)


def receive(requests):
    packet, ancillary, _, _ = requests.recvmsg(MAX_REQUEST_BYTES, socket.CMSG_SPACE(3 * 4))
    fds = array.array("i")
    for _, _, data in ancillary:
        fds.frombytes(data)
    return packet, fds


def supervise(packet, fds):
    """Runs the leader, and exits after all processes of the run are dead."""
    try:
        request = json.loads(packet)
        channel, out, err = fds
        os.setsid()
        # Processes of the run that lose their parent become children of this process.
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        supervisor = os.getpid()
        leader = os.fork()
        if leader == 0:
            lead(request, out, err, supervisor)
        null = os.open(os.devnull, os.O_RDWR)
        # The leader has its own output, and the worker's ends with the worker.
        for fd in (out, err, 1, 2):
            os.dup2(null, fd)
        waits = select.poll()
        waits.register(os.pidfd_open(leader), select.POLLIN)
        # It is readable when it is closed.
        waits.register(channel, select.POLLIN)
        waits.poll()
        os.write(channel, b"%d" % end(leader))
        os._exit(0)
    finally:
        os._exit(1)


def end(leader):
    """Kills all processes of the run, and returns the wait status of the leader."""
    status = signal.SIGKILL
    with contextlib.suppress(OSError):
        # The leader was not reaped, so no other group has its ID.
        os.killpg(leader, signal.SIGKILL)
    end = time.monotonic() + KILL_SECONDS
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < end:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == leader:
                    status = ended[1]
            # Their children become children of this process in turn.
            kill(children())
            time.sleep(0.002)
    return status


def lead(request, out, err, supervisor):
    """Runs ansible-playbook in this process, and exits."""
    code = 1
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == supervisor:
            os.setsid()
            replace_streams(out, err)
            code = exit_code(lambda: playbook(**request))
    finally:
        os._exit(code)


def playbook(folder, environment, arguments):
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(ENVIRONMENT, **environment)
    tempfile.tempdir = None
    sys.argv = ["ansible-playbook", *arguments]
    read_constants()
    flyball_modules.fork_modules()
    from ansible.cli.playbook import PlaybookCLI

    PlaybookCLI.cli_executor(sys.argv)


def read_constants():
    """Sets Ansible's constants for the environment of the run."""
    import ansible.constants as C

    lists = {name: value for name, value in vars(C).items() if isinstance(value, list)}
    # The others have been read at the import.
    changed = {name for name in {*IMPORTED, *os.environ} if IMPORTED.get(name) != os.environ.get(name)}
    for name, definition in C.config.get_configuration_definitions().items():
        if any(variable["name"] in changed for variable in definition.get("env") or []):
            C.set_constant(name, C.config.get_config_value(name, variables=vars(C)))
    # Plugin loaders have references to the lists.
    for name, known in lists.items():
        if isinstance(value := getattr(C, name), list):
            known[:] = value
            setattr(C, name, known)


def first_run(tasks):
    """Runs tasks, so that the memory knows their inputs, and returns true on success."""
    folder = tempfile.mkdtemp(dir=HERE)
    files = {
        "playbook.json": [{"hosts": "localhost", "gather_facts": False, "tasks": tasks}],
        "kubeconfig": {
            "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
            "users": [{"name": "a", "user": {"token": "a"}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "current-context": "a",
        },
    }
    for name, content in files.items():
        with open(os.path.join(folder, name), "w") as file:
            json.dump(content, file)
    environment = {
        # The operator may have callbacks and a cache with effects.
        "ANSIBLE_CACHE_PLUGIN": "memory",
        "ANSIBLE_CALLBACKS_ENABLED": "minimal",
        "ANSIBLE_LOCAL_TEMP": folder,
        "ANSIBLE_REMOTE_TEMP": folder,
        "ANSIBLE_STDOUT_CALLBACK": "minimal",
        "K8S_AUTH_KUBECONFIG": os.path.join(folder, "kubeconfig"),
        "TMPDIR": folder,
    }
    interpreter = "ansible_python_interpreter=" + sys.executable
    arguments = ["-i", "localhost,", "-c", "local", "-e", interpreter, "playbook.json"]
    with flyball_memory.recorded(os.path.join(folder, "inputs")):
        worker, leader = os.getpid(), os.fork()
        if leader == 0:
            null = os.open(os.devnull, os.O_RDWR)
            lead({"folder": folder, "environment": environment, "arguments": arguments}, null, null, worker)
        return os.waitpid(leader, 0)[1] == 0


# The plugins of which each run has a copy.
PLUGINS = ("callback.py", "guard.py", "literals.py", "wall.py")
K8S = {"api_version": "v1", "kind": "ConfigMap", "name": "a", "namespace": "a"}
BUILTIN_TASKS = [
    {"set_fact": {"a": "{{ [1] | map('string') | list }}"}},
    {"assert": {"that": ["a is defined"]}},
    {"command": "true"},
]
K8S_TASKS = [
    {"kubernetes.core.k8s": {"definition": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": K8S}}, "ignore_errors": True},
    {"kubernetes.core.k8s_info": K8S, "ignore_errors": True},
]

if __name__ == "__main__":
    requests = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    flyball_modules.note_import_system()
    flyball_memory.install()
    import ansible.cli.playbook

    # Otherwise each module of the first runs imports it.
    with contextlib.suppress(ImportError):
        import kubernetes
    # The collection may not be installed.
    if not first_run(BUILTIN_TASKS + K8S_TASKS):
        first_run(BUILTIN_TASKS)
    for name in PLUGINS:
        with open(os.path.join(HERE, name), "rb") as file:
            flyball_memory.fill_compiled(file.read(), "exec", 0)
    flyball_memory.fill()
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    Worker(requests).serve()
