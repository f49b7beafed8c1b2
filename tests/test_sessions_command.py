"`ramabana-acp sessions` as a person and a script use it: a real command, a store on disk, a terminal."
import json, os, re, subprocess, time
from functools import partial
from pathlib import Path
import pytest
from ramabana_acp.agent.library import Library
from ramabana_acp.models.messages import assistant, call, result, results, text, thinking, user
from ramabana_acp.workspace.activity import Activity
from terminal import EXE, env, exe, home, sh, tty

@pytest.fixture
def sessions(sh): return partial(sh, 'sessions')

def tree(d): return sorted(p.relative_to(d).as_posix() for p in d.rglob('*'))

@pytest.fixture
def lib(home): return Library(home/'state/ramabana-acp', program='the test')

@pytest.fixture
def work(home): (p := home/'work').mkdir(); return p.resolve()

@pytest.fixture
def say(lib, work):
    "Store a conversation of one turn, and return it"
    def f(sid, s, answer='yes', cwd=None, keep=False):
        time.sleep(.002) # times are kept in milliseconds, and the newest is first
        h = lib.new(sid, str(cwd or work))
        h.prompt([dict(type='text', text=s)])
        h.messages += [user(s), assistant([text(answer)])]
        h.end('end_turn')
        if not keep: h.close()
        return h
    return f

def test_with_nothing_kept_it_says_so_and_writes_nothing(sessions, home, work):
    was = tree(home)
    for args in ((), ('--all',), ('list',)):
        r = sessions(*args, d=home, cwd=work)
        assert (r.returncode, r.stdout, r.stderr)==(0, 'No conversation was kept yet.\n', '')
    assert sessions('--json', d=home, cwd=work).stdout=='[]\n' and tree(home)==was

def test_the_list_is_about_this_folder_and_newest_first(sessions, home, work, say):
    (other := home/'other').mkdir()
    say('s1', 'the first'); say('s2', 'elsewhere', cwd=other); say('s3', 'the second')
    ls = sessions(d=home, cwd=work).stdout.splitlines()
    assert [re.search(r'\bs\d\b', l)[0] for l in ls]==['s3','s1'] and 'the second' in ls[0] and '~/work' in ls[0] and re.match(r'\d{4}-\d\d-\d\d \d\d:\d\d  ', ls[0])
    assert [re.search(r'\bs\d\b', l)[0] for l in sessions('--all', d=home, cwd=work).stdout.splitlines()]==['s3','s2','s1']
    assert [r['sessionId'] for r in json.loads(sessions('list', '--all', '--json', d=home, cwd=work).stdout)]==['s3','s2','s1']
    rows = json.loads(sessions('--json', d=home, cwd=work).stdout)
    assert [(r['sessionId'], r['title'], r['cwd']) for r in rows]==[('s3','the second',str(work)), ('s1','the first',str(work))] and rows[0]['updatedAt'].endswith('Z')
    r = sessions(d=home)
    assert r.returncode==0 and '3 about other folders' in r.stdout
    (link := home/'link').symlink_to(work)
    assert 's3' in sessions(d=home, cwd=link).stdout

def test_a_long_list_ends_on_the_screen_and_not_for_a_program(sessions, home, work, say):
    for i in range(53): say(f's{i:02}', f'number {i}')
    ls = sessions(d=home, cwd=work).stdout.splitlines()
    assert len(ls)==51 and '3 older ones' in ls[-1] and len(json.loads(sessions('--json', d=home, cwd=work).stdout))==53

def test_it_is_a_command(home, work, say):
    say('s1', 'the first')
    r = exe('sessions', d=home, cwd=work)
    assert (r.returncode, r.stderr)==(0, '') and 's1  the first  ~/work' in r.stdout

def test_a_reader_that_has_had_enough_is_no_error(home, work, say):
    for i in range(50): say(f's{i:02}', f'number {i}')
    r = subprocess.run(f'"{EXE}" sessions | head -1', shell=True, cwd=work, env=env(home), capture_output=True, text=True, timeout=60)
    assert len(r.stdout.splitlines())==1 and 'Traceback' not in r.stderr and 'BrokenPipe' not in r.stderr

def test_nothing_odd_reaches_the_terminal(sessions, home, say):
    (d := home/'ev\x1b[31mil').mkdir()
    say('s1', '\x1b]0;owned\x07 hi \u202eab', 'an\x1b[2Jswer', cwd=d)
    r = sessions('--all', d=home)
    assert '\x1b' not in r.stdout and '\u202e' not in r.stdout and r.returncode==0
    r = sessions('show', 's1', d=home)
    assert '\x1b' not in r.stdout and 'answer' in r.stdout.replace('\\x1b[2J', '') and r.returncode==0

@pytest.fixture
def story(lib, work):
    h = lib.new('sess_story', str(work))
    h.prompt([dict(type='text', text='change it\nplease'), dict(type='image', mimeType='image/png', data='iVBORw0KGgo='), dict(type='resource_link', uri='file:///b.py', name='b')])
    cs = [call('c1', 'edit_file', dict(path='a.txt', old='two', new='TWO')), call('c2', 'run_shell', dict(command='make')), call('c3', 'run_shell', dict(command='sleep 9'))]
    h.messages += [user('change it, and internal things'), assistant([thinking('Hm, well.', 'seal'), text('I do it.'), *cs], 'calls')]
    h.save(mid='m1')
    acts = Activity(h.act)
    a = acts.start('edit_file', cs[0]['args'], id='c1')
    a.diff = str(work/'a.txt'),'one\ntwo\n','one\nTWO\n'
    acts.finish(a, 'edited', True)
    acts.finish(acts.start('run_shell', cs[1]['args'], id='c2'), 'no rule to make', False)
    h.planned([dict(id='1', text='look', status='done'), dict(id='2', text='leap', status='active')])
    h.messages.append(results([result(c, 'x') for c in cs[:2]]))
    h.save()
    acts.start('run_shell', cs[2]['args'], id='c3')
    return h

def test_show_is_the_conversation_as_a_person_saw_it(sessions, home, work, story):
    out = sessions('show', 'sess_story', d=home).stdout
    story.close()
    want = ['change it please', 'sess_story · ~/work', 'open in the test (process', '> change it', '> please', '[image/png]', '@file:///b.py', 'Hm, well.', 'I do it.', '✓ Edit a.txt', '-two', '+TWO', '✗ make', 'no rule to make', 'Plan', '✓ look', '▸ leap']
    at = [out.index(w) for w in want]
    assert at==sorted(at), out
    assert 'internal' not in out and 'seal' not in out and 'sleep 9 (not done yet)' in out
    out = sessions('show', 'latest', d=home, cwd=work).stdout
    assert '✗ sleep 9' in out and 'interrupted' in out and 'open in' not in out, 'closed without an end'

def test_show_leaves_the_store_as_it_was(sessions, home, lib, say):
    h = say('s1', 'hi')
    was = {p:p.read_bytes() for p in Path(lib.root).rglob('*') if p.is_file()}
    Path(h.path).write_bytes(was[Path(h.path)]+b'{"k":"ms')
    r = sessions('show', 's1', d=home)
    assert r.returncode==0 and 'yes' in r.stdout and Path(h.path).read_bytes().endswith(b'{"k":"ms') and {p for p in Path(lib.root).rglob('*') if p.is_file()}==set(was)

def test_latest_is_of_this_folder_or_of_all(sessions, home, work, say):
    (other := home/'other').mkdir()
    say('s1', 'here'); say('s2', 'there', cwd=other)
    assert 'here' in sessions('show', 'latest', d=home, cwd=work).stdout
    assert 'there' in sessions('show', '--all', 'latest', d=home, cwd=work).stdout
    r = sessions('show', 'latest', d=home)
    assert r.returncode==1 and 'no conversation about this folder' in r.stderr

def test_a_beginning_of_one_id_is_enough_and_of_two_is_not(sessions, home, say):
    say('sess_aa1', 'one'); say('sess_aa2', 'two'); say('sess_b', 'three'); say('sess_b2', 'four')
    assert 'one' in sessions('show', 'sess_aa1', d=home).stdout and 'three' in sessions('show', 'sess_b', d=home).stdout, 'a whole id is one'
    for args in (('show','sess_a'), ('delete','--yes','sess_b','sess_a'), ('show','zz'), ('show',''), ('delete','--yes','latest')):
        r = sessions(*args, d=home)
        assert r.returncode==1 and len(r.stderr.splitlines())==1 and r.stdout=='', r
    assert 'sess_aa1' in sessions('show', 'sess_a', d=home).stderr and len(json.loads(sessions('--all', '--json', d=home).stdout))==4

def test_what_does_not_go_together_is_a_sentence(sessions, home):
    for args in (('show',), ('show','a','b'), ('delete',), ('list','x'), ('show','a','--json'), ('--yes',), ('bogus',), ('--bogus',)):
        r = sessions(*args, d=home)
        assert r.returncode==2 and r.stdout=='' and 'Traceback' not in r.stderr, args

def test_delete_wants_a_yes(sessions, home, lib, say):
    say('s1', 'one')
    r = sessions('delete', 's1', d=home)
    assert (r.returncode, r.stdout)==(2, '') and '--yes' in r.stderr and lib.find('s1')
    r = sessions('delete', 's1', '--yes', d=home)
    assert (r.returncode, r.stdout, r.stderr)==(0, 'Deleted s1: one\n', '') and not [p for p in Path(lib.root).rglob('*') if 's1' in p.name and p.is_dir()]

def test_delete_at_a_terminal_asks(tty, lib, say):
    say('s1', 'one'); say('s2', 'two')
    for key,code in (('n\n',1), ('\n',1), ('\x04',1), ('\x03',130)):
        t = tty('sessions', 'delete', 's1', 's2')
        t.until('Delete these 2 conversations for good')
        t.type(key); t.until('no such thing')
        assert t.code()==code and lib.find('s1') and lib.find('s2') and 'Traceback' not in t.out, t.out
    t = tty('sessions', 'delete', 's1')
    t.until('Delete this conversation for good'); t.type('y\n'); t.until('no such thing')
    assert t.code()==0 and not lib.find('s1') and lib.find('s2')

def test_one_that_is_open_is_left_and_its_holder_named_and_the_others_go(sessions, home, lib, say):
    h = say('s1', 'one', keep=True); say('s2', 'two')
    r = sessions('delete', '--yes', 's1', 's2', d=home)
    h.close()
    assert r.returncode==1 and f'process {os.getpid()}' in r.stderr and lib.find('s1') and not lib.find('s2') and 'Deleted s2' in r.stdout

def test_colour_is_for_terminals_and_NO_COLOR_is_respected(tty, say):
    say('s1', 'one')
    for args in (('--all',), ('show','s1')):
        t = tty('sessions', *args); t.until('no such thing')
        assert t.code()==0 and '\x1b[' in t.out and 'one' in t.out
        t = tty('sessions', *args, NO_COLOR='1'); t.until('no such thing')
        assert t.code()==0 and '\x1b' not in t.out

def test_cfg_moves_the_store(sessions, home, say):
    say('s1', 'one')
    r = sessions('--all', '--cfg', str(home/'elsewhere'), d=home)
    assert r.returncode==0 and 'No conversation' in r.stdout and not (home/'elsewhere').exists()
    assert 's1' in sessions('--all', '--cfg', str(home/'state/ramabana-acp'), d=home).stdout

def test_one_that_no_list_has_any_more_can_be_deleted_by_its_whole_id(sessions, home, lib, say):
    say('sess_aa', 'one')
    d = Path(lib.find('sess_aa'))
    (d/'transcript.jsonl').write_text('garbage')
    (d/'meta.json').unlink()
    r = sessions('show', 'sess_aa', d=home)
    assert r.returncode==1 and 'can be read' in r.stderr and str(d) in r.stderr
    assert sessions('delete', 'sess_a', '--yes', d=home).returncode==1 and d.exists(), 'the beginning of an id is for what is listed'
    assert sessions('delete', 'sess_aa', '--yes', d=home).returncode==0 and not d.exists()
