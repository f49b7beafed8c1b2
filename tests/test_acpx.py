"A client that others wrote drives a full turn: npm's acpx, from outside."
import json, os, shutil, subprocess, sys
from pathlib import Path
import pytest

ACPX = os.environ.get('ACPX') or shutil.which('acpx')
pytestmark = pytest.mark.skipif(not ACPX, reason='no acpx here: npm install acpx@~0.19.0 and set ACPX to its path')
AGENT = f'{Path(sys.executable).with_name("ramabana-acp")} --model demo'

def acpx(d, home, *args, timeout=120):
    env = {**os.environ, 'HOME':str(home), 'XDG_CONFIG_HOME':str(home/'config'), 'XDG_STATE_HOME':str(home/'state')}
    return subprocess.run([ACPX, '--agent', AGENT, '--cwd', str(d), '--format', 'json', *args], cwd=d, env=env, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)

@pytest.fixture
def project(tmp_path):
    d = tmp_path/'project'; d.mkdir()
    (d/'ages.py').write_text('def adult(age):\n    return age > 18\n')
    (d/'test_ages.py').write_text('import unittest\nfrom ages import adult\n\nclass T(unittest.TestCase):\n    def test_adult(self):\n'
        '        self.assertTrue(adult(18))\n        self.assertFalse(adult(17))\n')
    return d

def test_a_full_turn_with_an_approved_edit(project, tmp_path):
    r = acpx(project, tmp_path, '--approve-all', 'exec', 'fix the failing test')
    assert r.returncode==0, r.stderr+r.stdout[-2000:]
    assert (project/'ages.py').read_text()=='def adult(age):\n    return age >= 18\n'
    ms = [json.loads(l) for l in r.stdout.splitlines() if l.startswith('{')]
    asked = [m['params'] for m in ms if m.get('method')=='session/request_permission']
    diffs = [c for p in asked for c in p['toolCall'].get('content') or [] if c['type']=='diff']
    assert [(c['path'], 'age >= 18' in c['newText']) for c in diffs]==[(str(project.resolve()/'ages.py'), True)]
    assert any((m.get('result') or {}).get('stopReason')=='end_turn' for m in ms)

def test_a_refused_edit_changes_nothing(project, tmp_path):
    was = (project/'ages.py').read_text()
    acpx(project, tmp_path, '--deny-all', 'exec', 'fix the failing test')
    assert (project/'ages.py').read_text()==was

def test_a_session_goes_on_across_processes(project, tmp_path):
    new = acpx(project, tmp_path, 'sessions', 'new')
    assert new.returncode==0, new.stderr
    for said in ('read ages.py', 'list the files'):
        r = acpx(project, tmp_path, '--approve-all', 'prompt', said)
        assert r.returncode==0, r.stderr+r.stdout[-2000:]
    ms = [json.loads(l) for l in r.stdout.splitlines() if l.startswith('{')]
    assert any('ages.py' in json.dumps(m) for m in ms)
    kept = subprocess.run([Path(sys.executable).with_name('ramabana-acp'), 'sessions', 'list', '--all', '--json'], env={**os.environ, 'HOME':str(tmp_path),
        'XDG_CONFIG_HOME':str(tmp_path/'config'), 'XDG_STATE_HOME':str(tmp_path/'state')}, capture_output=True, text=True, timeout=60)
    assert 'read ages.py' in kept.stdout, kept.stderr
    assert acpx(project, tmp_path, 'sessions', 'close').returncode==0
