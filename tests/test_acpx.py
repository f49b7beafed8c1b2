"A client that others wrote drives a full turn: npm's acpx, from outside."
import json, os, shutil, subprocess, sys
from functools import partial
from pathlib import Path
import pytest

ACPX = os.environ.get('ACPX') or shutil.which('acpx')
pytestmark = pytest.mark.skipif(not ACPX, reason='no acpx here: npm install acpx@~0.19.0 and set ACPX to its path')
AGENT = f'{Path(sys.executable).with_name("ramabana-acp")} --model demo'

def acpx(d, home, *args, timeout=120, agent=AGENT):
    env = {**os.environ, 'HOME':str(home), 'XDG_CONFIG_HOME':str(home/'config'), 'XDG_STATE_HOME':str(home/'state')}
    return subprocess.run([ACPX, '--agent', agent, '--cwd', str(d), '--format', 'json', *args], cwd=d, env=env, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)

@pytest.fixture
def swift(tmp_path):
    "The same agent without the pauses that its demo model makes for people"
    (tmp_path/'swift.py').write_text('from ramabana_acp.models.demo import DemoProvider\nDemoProvider.pace = 0\nfrom ramabana_acp.entry import run\nrun()\n')
    return f'{sys.executable} {tmp_path}/swift.py --model demo'

@pytest.fixture
def project(tmp_path):
    d = tmp_path/'project'; d.mkdir()
    (d/'ages.py').write_text('def adult(age):\n    return age > 18\n')
    (d/'test_ages.py').write_text('import unittest\nfrom ages import adult\n\nclass T(unittest.TestCase):\n    def test_adult(self):\n'
        '        self.assertTrue(adult(18))\n        self.assertFalse(adult(17))\n')
    return d

def said(r):
    "The messages that acpx has printed"
    return [json.loads(l) for l in r.stdout.splitlines() if l.startswith('{')]

def mended(project, r):
    "Hold a turn that mends the project against what has to be seen of it"
    assert r.returncode==0, r.stderr+r.stdout[-2000:]
    assert (project/'ages.py').read_text()=='def adult(age):\n    return age >= 18\n'
    asked = [m['params'] for m in said(r) if m.get('method')=='session/request_permission']
    diffs = [c for p in asked for c in p['toolCall'].get('content') or [] if c['type']=='diff']
    assert [(c['path'], 'age >= 18' in c['newText']) for c in diffs]==[(str(project.resolve()/'ages.py'), True)]
    assert any((m.get('result') or {}).get('stopReason')=='end_turn' for m in said(r))

def test_a_full_turn_with_an_approved_edit_and_its_session_goes_on_across_processes(project, tmp_path, swift):
    call = partial(acpx, project, tmp_path, agent=swift)
    new = call('sessions', 'new')
    assert new.returncode==0, new.stderr
    mended(project, call('--approve-all', 'prompt', 'fix the failing test'))
    r = call('--approve-all', 'prompt', 'list the files')
    assert r.returncode==0, r.stderr+r.stdout[-2000:]
    assert any('ages.py' in json.dumps(m) for m in said(r))
    kept = subprocess.run([Path(sys.executable).with_name('ramabana-acp'), 'sessions', 'list', '--all', '--json'], env={**os.environ, 'HOME':str(tmp_path),
        'XDG_CONFIG_HOME':str(tmp_path/'config'), 'XDG_STATE_HOME':str(tmp_path/'state')}, capture_output=True, text=True, timeout=60)
    assert 'fix the failing test' in kept.stdout, kept.stderr
    assert call('sessions', 'close').returncode==0

# Each call of acpx is an npm process or two: the walks below are for a longer run.

@pytest.mark.slow
def test_one_turn_without_a_session(project, tmp_path): mended(project, acpx(project, tmp_path, '--approve-all', 'exec', 'fix the failing test'))

@pytest.mark.slow
def test_a_refused_edit_changes_nothing(project, tmp_path):
    was = (project/'ages.py').read_text()
    acpx(project, tmp_path, '--deny-all', 'exec', 'fix the failing test')
    assert (project/'ages.py').read_text()==was

@pytest.mark.slow
def test_set_and_set_mode_control_the_session(project, tmp_path, swift):
    call = partial(acpx, project, tmp_path, agent=swift)
    was = (project/'ages.py').read_text()
    assert call('sessions', 'new').returncode==0
    r = call('set', 'tool_approval', 'yolo')
    opts = {o['id']:o['currentValue'] for o in said(r)[-1]['configOptions']}
    assert r.returncode==0 and opts==dict(mode='normal', model='demo', agent_preset='balanced', tool_approval='yolo')
    assert call('set', 'work_mode', 'economy').returncode==0
    assert call('set-mode', 'plan').returncode==0
    r = call('--deny-all', 'prompt', 'fix the failing test')
    assert (project/'ages.py').read_text()==was and any(m.get('result', {}).get('stopReason')=='end_turn' for m in said(r)), r.stdout[-2000:]
    assert call('set-mode', 'normal').returncode==0
    r = call('--approve-all', 'prompt', 'fix the failing test')
    assert (project/'ages.py').read_text()==was.replace('> 18', '>= 18'), r.stdout[-2000:] # its exit code still speaks of the plan that was denied
    assert not [m for m in said(r) if m.get('method')=='session/request_permission'], 'yolo asks nobody'
    call('sessions', 'close')

CANNOT = [(['set','tool_approval','yolo'], 'above the ceiling ask'), (['set-mode','nosuch'], 'normal, plan'), (['set-mode','auto'], 'above the ceiling ask'), (['set','colour','red'], 'unknown config option')]

@pytest.mark.slow
@pytest.mark.parametrize('i', [0, 2])
def test_what_cannot_be_set_is_told(project, tmp_path, i):
    agent = f'{AGENT} --permission-mode ask'
    assert acpx(project, tmp_path, 'sessions', 'new', agent=agent).returncode==0
    for args,why in CANNOT[i:i+2]:
        r = acpx(project, tmp_path, *args, agent=agent)
        assert r.returncode!=0 and why in r.stdout and '-32602' in r.stdout, args
    r = acpx(project, tmp_path, 'set', 'tool_approval', 'readOnly', agent=agent)
    assert r.returncode==0 and {o['id']:o['currentValue'] for o in said(r)[-1]['configOptions']}['tool_approval']=='readOnly', 'and what can be, is'
    acpx(project, tmp_path, 'sessions', 'close', agent=agent)
