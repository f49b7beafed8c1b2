"How a test uses the commands: in its own process, as a process, and at a terminal."
import io, os, pty, re, select, signal, subprocess, sys, time
from pathlib import Path
from unittest.mock import patch
import pytest
from ramabana_acp import core
from ramabana_acp.entry import COMMANDS, run

EXE = str(Path(sys.executable).with_name('ramabana-acp'))

def env(d, **kw):
    "An environment with homes of its own and no keys"
    e = {k:v for k,v in os.environ.items() if not k.endswith('_API_KEY') and k not in ('NO_COLOR','TERM')}
    return {**e, 'HOME':str(d), 'XDG_CONFIG_HOME':str(d/'config'), 'XDG_STATE_HOME':str(d/'state'), 'TERM':'xterm', **kw}

@pytest.fixture
def home(tmp_path): (tmp_path/'home').mkdir(); return tmp_path/'home'

# The command with an agent whose demo model makes no pauses for people
_agent = "from ramabana_acp.models.demo import DemoProvider as D; D.pace = 0; from ramabana_acp.entry import run; run()"
SWIFT = [sys.executable, '-c', f"import sys; from ramabana_acp import ui; ui.AGENT[:] = [sys.executable, '-P', '-c', {_agent!r}]; from ramabana_acp.entry import run; run()"]

def exe(*args, d, cwd=None, stdin='', cmd=(EXE,), **kw):
    "The command as a process of its own, at a plain umask, with homes in `d`"
    return subprocess.run([*cmd, *args], cwd=cwd or d, env=env(d, **kw), capture_output=True, text=True, timeout=120, input=stdin, umask=0o022)

@pytest.fixture
def sh(monkeypatch, capsys):
    "The same in this process, which has loaded the libraries already; it knows no secret that it knew before"
    def f(*args, d, cwd=None, stdin='', **kw):
        assert args[0] in COMMANDS # whatever else there is would serve on our stdout
        monkeypatch.setattr(core, '_secrets', set())
        monkeypatch.setattr(sys, 'stdin', io.StringIO(stdin))
        monkeypatch.chdir(cwd or d)
        capsys.readouterr()
        was,code = os.umask(0o022),0
        try:
            with patch.dict(os.environ, env(d, **kw), clear=True): run(list(args))
        except SystemExit as e: code = e.code or 0
        finally: os.umask(was)
        return subprocess.CompletedProcess(args, code, *capsys.readouterr())
    return f

class Tty:
    "The command at a terminal of its own"
    def __init__(self, *args, d, cmd=(EXE,), **kw):
        self.pid,self.fd = pty.fork()
        if not self.pid: # a terminal gives its program the usual signals, whatever the runner of the tests has done with them
            signal.signal(signal.SIGINT, signal.SIG_DFL); signal.pthread_sigmask(signal.SIG_SETMASK, [])
            os.chdir(d); os.execve(cmd[0], [*cmd, *args], env(d, **kw))
        self.out,self.seen = '',0
    def until(self, *pats, timeout=60):
        "Read until one of the patterns shows in what is new; its index, or None at the end of the output"
        end = time.monotonic()+timeout
        while True:
            for i,p in enumerate(pats):
                if m := re.search(p, self.out[self.seen:]): self.seen += m.end(); return i
            if time.monotonic()>end: raise TimeoutError(self.out[-2000:])
            if not select.select([self.fd], [], [], .2)[0]: continue
            try: b = os.read(self.fd, 4096)
            except OSError: b = b'' # how Linux says that the other end is closed
            if not b: return None
            self.out += b.decode(errors='replace')
    def type(self, s):
        "Type `s`; a Ctrl-C only when the program sleeps: one that comes between its question and the reading of the answer is heard at the next key, and a person presses it again"
        end = time.monotonic()+20
        while '\x03' in s and not self.asleep():
            if time.monotonic()>end: raise TimeoutError(f'the program does not wait: {self.out[-2000:]}')
        os.write(self.fd, s.encode())
    def asleep(self): return subprocess.run(['ps','-o','stat=','-p',str(self.pid)], capture_output=True, text=True).stdout.startswith(('S','I'))
    def code(self, timeout=60):
        end = time.monotonic()+timeout
        while time.monotonic()<end:
            pid,st = os.waitpid(self.pid, os.WNOHANG)
            if pid: self.pid = 0; return os.waitstatus_to_exitcode(st)
            time.sleep(.02)
        raise TimeoutError(self.out[-2000:])

@pytest.fixture
def tty(home):
    "Starts commands at terminals, and ends those that are left"
    ts = []
    def start(*args, **kw): ts.append(Tty(*args, d=home, **kw)); return ts[-1]
    yield start
    for t in ts:
        if t.pid: os.kill(t.pid, signal.SIGKILL); os.waitpid(t.pid, 0)
        os.close(t.fd)
