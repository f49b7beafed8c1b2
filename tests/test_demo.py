"The demo model mends what it has never seen, and the commands play the editor: through a pipe and at a terminal."
import subprocess, sys
import pytest
from ramabana_acp import cli
from ramabana_acp.client import Client
from ramabana_acp.testing.editor import Editor
from terminal import SWIFT, env, exe, home, tty

def passes(d, *args): return subprocess.run([sys.executable,'-B','-m','unittest','-q',*args], cwd=d, capture_output=True).returncode==0

def project(d, **files):
    for n,s in files.items():
        p = d/n.replace('__', '/').replace('_py', '.py'); p.parent.mkdir(parents=True, exist_ok=True); p.write_text(s)
    return d

def moved(name, bug):
    "The demo's own sample under another name and with another bug"
    code = cli.SAMPLE['prices.py'].replace('100 + discount', '100 - discount').replace(*bug)
    return {f'{name}.py':code, f'test_{name}.py':cli.SAMPLE['test_prices.py'].replace('from prices', f'from {name}')}

BUGS = dict(operator=('100 - discount', '100 * discount'), number=('discount) / 100', 'discount) / 101'), variable=('100 - discount', '100 - prices'),
    function=('sum(prices)', 'max(prices)'), division=(') / 100', ') * 100'))

AT_ONCE = "from ramabana_acp.models.demo import DemoProvider as D; D.pace = 0; from ramabana_acp.entry import run; run(['--model','demo'])" # without the pauses between words, which one test through a pipe and one at a terminal see

@pytest.fixture(scope='module')
def agent(tmp_path_factory):
    "`agent(folder, prompt)`: what the demo model answers there, everything allowed; one process for all tests"
    ed = Editor(fs=False)
    c = Client([sys.executable,'-c',AT_ONCE], env=env(tmp_path_factory.mktemp('home')), on_request=ed, on_update=ed.on_update)
    c.initialize(ed.caps)
    def ask(d, prompt):
        sid = c.new(d)
        assert c.prompt(sid, prompt)['stopReason']=='end_turn'
        return c.text(sid)
    yield ask
    c.close()
    ed.close()

@pytest.mark.parametrize('bug', BUGS)
def test_the_bug_moves_and_the_file_is_renamed_and_it_is_mended(bug, tmp_path, agent):
    for n,s in moved('till', BUGS[bug]).items(): (tmp_path/n).write_text(s)
    assert not passes(tmp_path)
    said = agent(tmp_path, 'one of the tests fails, please fix it')
    assert passes(tmp_path) and 'demo model' in said and 'All 2 tests pass now.' in said, said

def test_another_layout_and_another_kind_of_bug(tmp_path, agent):
    project(tmp_path, src__pile_py='class Pile:\n    def __init__(self): self.xs = []\n    def puexe(self, x):\n        self.xs.append(x)\n'
        '    def top(self):\n        return self.xs[len(self.xs)]\n',
        tests__pile_test_py='import unittest\nfrom pile import Pile\n\nclass T(unittest.TestCase):\n    def test_top(self):\n        p = Pile()\n'
        '        p.puexe(1)\n        p.puexe(5)\n        self.assertEqual(p.top(), 5)\n')
    said = agent(tmp_path, 'mend the bug')
    assert 'return self.xs[len(self.xs) - 1]' in (tmp_path/'src/pile.py').read_text(), said

def test_code_that_only_running_can_tell_is_guessed_at(tmp_path, agent):
    project(tmp_path, clock_py='import time\n\ndef past(t):\n    return t > time.time()\n',
        test_clock_py='import unittest\nfrom clock import past\n\nclass T(unittest.TestCase):\n    def test_past(self):\n        self.assertTrue(past(0))\n        self.assertFalse(past(1e12))\n')
    said = agent(tmp_path, 'fix it, the test is broken')
    assert passes(tmp_path) and 'my guess is' in said, said

def test_what_it_cannot_mend_is_left_as_it_was(tmp_path, agent):
    project(tmp_path, far_py='import os\ndef answer(): return os.getpid() % 1\n',
        test_far_py='import unittest\nfrom far import answer\n\nclass T(unittest.TestCase):\n    def test_it(self): self.assertEqual(answer(), "forty two")\n')
    was = (tmp_path/'far.py').read_text()
    said = agent(tmp_path, 'fix the test')
    assert (tmp_path/'far.py').read_text()==was and 'A real model looks further' in said, said

def test_small_requests_are_done_with_the_tools(tmp_path, agent):
    (tmp_path/'a.txt').write_text('twenty-seven words\n')
    assert 'twenty-seven words' in agent(tmp_path, 'read a.txt')
    assert 'a.txt' in agent(tmp_path, 'list')
    assert '42' in agent(tmp_path, 'run echo $((6*7))')
    agent(tmp_path, 'write new.txt: hello there')
    assert (tmp_path/'new.txt').read_text()=='hello there\n'
    assert 'ANTHROPIC_API_KEY' in agent(tmp_path, 'who are you?')

def test_in_plan_mode_it_plans_and_when_approved_it_mends(tmp_path):
    (tmp_path/'home').mkdir(); (tmp_path/'p').mkdir()
    for n,s in moved('till', BUGS['operator']).items(): (tmp_path/'p'/n).write_text(s)
    ed = Editor(fs=False)
    with Client([sys.executable,'-c',AT_ONCE], env=env(tmp_path/'home'), on_request=ed, on_update=ed.on_update) as c:
        c.initialize(ed.caps)
        sid = c.new(tmp_path/'p')
        for prompt,asked in (('tell me a story', 0), ('fix the failing test', 1)):
            c.request('session/set_mode', dict(sessionId=sid, modeId='plan'))
            assert c.prompt(sid, prompt)['stopReason']=='end_turn'
            cards = [p for p in ed.permissions if p['toolCall'].get('kind')=='switch_mode']
            assert len(cards)==asked and passes(tmp_path/'p')==bool(asked), c.text(sid)
        assert '3. Mend the slip' in cards[0]['toolCall']['content'][0]['content']['text']
    ed.close()

def test_ask_mends_and_reports_through_a_pipe(tmp_path, home):
    for n,s in moved('till', BUGS['operator']).items(): (tmp_path/n).write_text(s)
    r = exe('ask', 'fix', 'the', 'failing', 'test', '--root', str(tmp_path), '--model', 'demo', '--yes', d=home, cmd=SWIFT)
    assert (r.returncode, r.stderr, passes(tmp_path))==(0, '', True), r.stdout
    assert '+    return sum(prices) * (100 - discount) / 100' in r.stdout and 'All 2 tests pass now.' in r.stdout

def test_without_a_terminal_nothing_is_allowed_that_was_not_asked(tmp_path, home):
    d = tmp_path/'shop'; d.mkdir()
    for n,s in moved('till', BUGS['operator']).items(): (d/n).write_text(s)
    r = exe('ask', 'fix the failing test', '--root', str(d), '--model', 'demo', d=home, cmd=SWIFT)
    assert r.returncode==0 and not passes(d)
    assert 'there is nobody to ask here' in r.stdout and 'The tests were not run' in r.stdout

def test_the_demo_through_a_pipe_answers_itself_and_says_so(home):
    r = exe('demo', d=home)
    assert r.returncode==0, r.stdout+r.stderr
    assert 'There is nobody to ask here' in r.stdout and 'they pass' in r.stdout and '"agent_servers"' in r.stdout
    assert '\x1b' not in r.stdout and r.stderr==''

def test_errors_are_one_line_and_exit_codes_tell(home):
    r = exe('ask', 'hi', d=home)
    assert r.returncode==1 and len(r.stdout.strip().splitlines())==1 and 'ANTHROPIC_API_KEY' in r.stdout and 'Traceback' not in r.stderr
    r = exe('ask', '--root', '/nonexistent', 'hi', d=home)
    assert r.returncode==2 and 'no such folder: /nonexistent' in r.stderr
    assert exe('ask', d=home).returncode==2
    r = exe('ask', 'hi', '--model', 'nowhere/x', d=home)
    assert r.returncode==1 and 'nowhere' in r.stdout and 'Traceback' not in r.stdout+r.stderr

def test_the_demo_at_a_terminal_asks(tty):
    t = tty('demo')
    n = 0
    while t.until(r'  > ') is not None: n += 1; t.type('y\n')
    assert t.code()==0, t.out
    assert n>=2 and 'they pass' in t.out and '\x1b[32m' in t.out

def test_no_color_is_respected_at_a_terminal(tty):
    t = tty('demo', '--yes', NO_COLOR='1', cmd=SWIFT)
    assert t.until('no such thing') is None
    assert t.code()==0 and '\x1b' not in t.out

def test_a_person_who_says_no_keeps_the_file(tty):
    t = tty('demo', cmd=SWIFT)
    while (i := t.until(r'\? python3 -B -m unittest[^?]*?  > ', r'\? [^?]*?  > ')) is not None: t.type('y\n' if i==0 else 'n\n')
    assert t.code()==1
    assert 'The change was not made' in t.out and 'they still fail' in t.out

def test_ctrl_c_cancels_the_turn(tty):
    t = tty('ask', 'run', 'sleep 600', '--model', 'demo', '--yes')
    t.until('allowed')
    t.type('\x03')
    t.until('no such thing') # in far less than it would take by itself
    assert t.code()==130 and 'Traceback' not in t.out, t.out

def test_ctrl_c_at_a_question_leaves_it_unanswered(tty, home):
    t = tty('ask', 'write b.txt: hi', '--model', 'demo')
    t.until(r'  > ')
    t.type('\x03')
    t.until('no such thing')
    assert t.code()==130 and not (home/'b.txt').exists() and 'Traceback' not in t.out, t.out
