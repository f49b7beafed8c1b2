"What a person meets in the first minutes, and where something about the machine is odd: a sentence that says what to do, and never a traceback."
import os, re, shlex, subprocess
import pytest
from ramabana_acp import doctor
from terminal import EXE, env, exe, home, sh, tty

def in_shell(cmd, d, **kw): return subprocess.run(['sh','-c',cmd], cwd=d, env=env(d, **kw), capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
def sentence(r): assert 'Traceback' not in r.stderr and r.stderr.startswith(('ramabana-acp: ','usage: ')), r.stderr; return r.stderr

WORDS = dict(ask='hi --model demo', doctor='--offline', sessions='', replay='rec.jsonl', setup='', logout='')

def test_the_bare_command_tells_a_terminal_what_it_waits_for(tty):
    t = tty('--model', 'demo')
    assert t.until(r'`ramabana-acp demo` or `ramabana-acp --help`')==0
    t.type('\x03')
    assert t.code() in (0, -2)

def test_the_bare_command_says_nothing_to_an_editor(home):
    r = exe('--model', 'demo', d=home)
    assert (r.returncode, r.stdout, r.stderr)==(0, '', '')

@pytest.mark.parametrize('name', WORDS)
def test_a_folder_that_is_gone(home, name):
    (home/'gone').mkdir()
    r = in_shell(f'cd gone; rmdir ../gone; exec {shlex.quote(EXE)} {name} {WORDS[name]}', home)
    assert 'Traceback' not in r.stderr, r.stderr
    if name not in ('setup','logout'): assert (r.returncode, sentence(r))==(1, 'ramabana-acp: the folder you are in is gone: cd to one that is there\n')

@pytest.mark.parametrize('stream', ['<&-', '>&-', '2>&-'])
def test_a_standard_stream_that_is_closed(home, stream):
    for cmd in ('--version', 'setup', 'sessions delete x', '--model demo </dev/null' if stream!='<&-' else '--model demo'):
        r = in_shell(f'exec {shlex.quote(EXE)} {cmd} {stream}', home)
        assert 'Traceback' not in r.stderr+r.stdout and r.returncode in (0, 1, 2), (cmd, r)

@pytest.mark.skipif(not os.path.exists('/dev/full'), reason='no /dev/full here')
def test_a_disk_that_is_full(home):
    for cmd in ('sessions', 'logout', 'doctor --editors'): assert 'No space left on device' in sentence(in_shell(f'{shlex.quote(EXE)} {cmd} >/dev/full', home))

def test_a_settings_file_that_cannot_be_read(sh, home):
    (home/'config/ramabana-acp').mkdir(parents=True)
    (home/'config/ramabana-acp/config.toml').write_text('model = "x\n')
    for args in (['logout'], ['setup'], ['ask','hi']):
        r = sh(*args, d=home)
        assert r.returncode==1 and re.search(r'config\.toml: .*line 1', r.stdout+r.stderr) and 'Traceback' not in r.stderr, (args, r)

def test_a_home_that_cannot_be_written_is_named(sh, home):
    (home/'file').touch()
    r = sh('setup', '--provider', 'openai', '--model', 'x', '--key-stdin', '--no-check', d=home, stdin='sk-1234567890', XDG_CONFIG_HOME=str(home/'file'))
    assert r.returncode==1 and re.fullmatch(rf'ramabana-acp: {re.escape(str(home/"file"))}.*: \w.*\n', r.stderr) and 'Errno' not in r.stderr, r.stderr

def test_a_refused_command_is_no_step_that_was_done(tty):
    t = tty('demo')
    t.until('never .*\n.*> ')
    t.type('n\n')
    t.until('they still fail')
    assert t.code()==1
    end = t.out[t.out.rindex('refused'):]
    assert '✓' not in end and 'you did not allow it' in end and 'Do not try' not in t.out

def test_what_an_editor_wants_is_told_though_no_session_can_start(sh, home, monkeypatch):
    monkeypatch.setattr(doctor.libraries, '__defaults__', (dict(acp='agent-client-protocol'),))
    r = sh('doctor', '--offline', d=home)
    assert r.returncode==1 and 'ramabana-acp doctor --editors' in r.stdout.splitlines()[-1]
    r = sh('doctor', '--editors', d=home)
    assert r.returncode==0 and all(w in r.stdout for w in ('agent_servers','codecompanion','avante','agent-shell')) and r.stdout.count(f'"{EXE}"')==5

def test_a_message_after_another_begins_a_line(sh, home):
    (home/'file').touch()
    r = exe('ask', 'hello', '--model', 'demo', d=home, XDG_STATE_HOME=str(home/'file'))
    assert re.search(r'\n\nThis conversation is not being saved: .*\.\n', r.stdout), r.stdout
