"Permissions that outlive a session, and the folders a session may be given: in process, in every corner"
import json, multiprocessing, os
from pathlib import Path
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from ramabana_acp.core import Err, InvalidParams
from ramabana_acp.workspace.approvals import MODES, Approvals
from ramabana_acp.workspace.gate import Grant, same
from ramabana_acp.workspace.ledger import Ledger, parse_rule, rule_text
from ramabana_acp.workspace.roots import MOST, vet
from ramabana_acp.workspace.simple import simple

@pytest.fixture
def home(tmp_path): return tmp_path.resolve()
def ledger(home, project='one'): return Ledger(home/'cfg', home/project)
def file(home): return home/'cfg/permissions.json'
def config(home, text):
    (home/'cfg').mkdir(exist_ok=True)
    (home/'cfg/config.toml').write_text(text)
def answering(ok=True, **kw):
    "A gate whose person always says the same, and the calls that were put to them"
    asked = []
    ap = Approvals(**{k:v for k,v in kw.items() if k in ('ledger','mode','host')})
    ap.listen(lambda a: (asked.append(a.args), ap.answer(a.id, ok, session=True, scope=kw.get('scope', 'call'))))
    return ap,asked

# ---- rules as text

@pytest.mark.parametrize('s', ['run_shell(git status)','run_shell(git push *)','edit_file','edit_file(src/*)','*','mcp__x__*(a b)','run_shell(echo (x))'])
def test_a_rule_reads_as_it_was_written(s): assert rule_text(parse_rule(s))==s

@pytest.mark.parametrize('s', ['', ' ', 'rm -rf; (', 'run_shell()', 'run_shell( )', '(ls)', 'run_shell(ls) x', 'a b', 'run_shell(ls', 7, None, ['x']])
def test_what_is_no_rule_is_named(s):
    with pytest.raises(InvalidParams, match='is no rule'): parse_rule(s)

# ---- the file

@pytest.mark.parametrize('text', ['{', '{}', '[1]', '[{"tool":"x"}]', '[{"tool":1,"pattern":"","verdict":"allow"}]', '[{"tool":"x","pattern":"","verdict":"maybe"}]', '[{"tool":"x","pattern":"*","verdict":"allow","call":5}]', '"x"', '\ud800'.encode('utf-8', 'surrogatepass')])
@pytest.mark.parametrize('mode', MODES)
def test_a_file_that_cannot_be_read_refuses_in_every_row_and_says_which_it_is(home, text, mode):
    l = ledger(home)
    file(home).parent.mkdir(exist_ok=True)
    file(home).write_bytes(text if isinstance(text, bytes) else text.encode())
    ap,asked = answering(ledger=l, mode=mode)
    r = ap.request('run_shell', dict(command='ls'))
    assert not r and 'permissions.json' in r.reply() and not asked

@pytest.mark.parametrize('text', ['[permissions]\ndeny = "x"\n', '[permissions]\nmaybe = []\n', 'permissions = 5\n', '[permissions]\ndeny = ["rm ("]\n', '[permissions]\nallow = [7]\n', '[permissions\n'])
def test_rules_of_the_config_that_make_no_sense_refuse(home, text):
    config(home, text)
    r = Approvals(mode='auto', ledger=ledger(home)).request('run_shell', dict(command='make'))
    assert not r and ('config.toml' in r.reply() or 'no rule' in r.reply())

def test_a_change_of_either_file_is_seen_at_once(home):
    l = ledger(home)
    ap = Approvals(mode='auto', ledger=l)
    assert ap.decide('run_shell', dict(command='make'))
    config(home, '[permissions]\ndeny = ["run_shell(make *)"]\n')
    assert not ap.decide('run_shell', dict(command='make'))
    config(home, '')
    assert ap.decide('run_shell', dict(command='make'))
    ledger(home).keep(parse_rule('run_shell(make)', 'deny'), 'person')
    assert not ap.decide('run_shell', dict(command='make'))
    file(home).unlink()
    assert ap.decide('run_shell', dict(command='make'))

def test_C185_the_file_is_private_whatever_it_was_and_whatever_the_umask(home):
    l,was = ledger(home),os.umask(0)
    try:
        l.keep(parse_rule('run_shell(a)'), 'person')
        file(home).chmod(0o644)
        l.keep(parse_rule('run_shell(b)'), 'person')
    finally: os.umask(was)
    assert {p.name:oct(p.stat().st_mode&0o777) for p in file(home).parent.iterdir()}=={'permissions.json':'0o600', 'permissions.json.lock':'0o600'} and file(home).parent.stat().st_mode&0o777==0o700

def _keep(home, i):
    for j in range(10): ledger(Path(home), f'p{i}').keep(parse_rule(f'run_shell(c{i} {j})'), 'project')

def test_programs_that_store_at_the_same_time_lose_nothing(home):
    ps = [multiprocessing.get_context('spawn').Process(target=_keep, args=(str(home), i)) for i in range(3)]
    for p in ps: p.start()
    for p in ps: p.join(60)
    assert len(json.loads(file(home).read_text()))==30 and [len(ledger(home, f'p{i}').rules()) for i in range(3)]==[10]*3

def test_the_same_permission_twice_is_one_and_revoking_takes_it_back(home):
    l,g = ledger(home),parse_rule('run_shell(make)')
    for _ in range(2): l.keep(g, 'person'); l.keep(g, 'project')
    assert [r.scope for r in l.rules()]==['person','project']
    l.revoke(l.rules()[0])
    assert [r.scope for r in l.rules()]==['project']
    with pytest.raises(InvalidParams): l.keep(g, 'world')

def test_a_project_is_its_real_folder(home):
    (home/'one').mkdir(); (home/'link').symlink_to('one')
    ledger(home, 'link').keep(parse_rule('run_shell(make)'), 'project')
    assert len(ledger(home, 'one').rules())==1 and not ledger(home, 'one/..').rules()

# ---- answers

@pytest.mark.parametrize('scope,later,elsewhere', [('call',False,False), ('project',True,False), ('person',True,True)])
def test_C071_how_long_a_permission_lasts(home, scope, later, elsewhere):
    make = 'run_shell',dict(command='make all')
    ap,asked = answering(scope=scope, ledger=ledger(home))
    assert ap.request(*make) and ap.decide(*make) and len(asked)==1
    assert ap.decide('run_shell', dict(command='make')) is None and ap.decide('run_shell', dict(command='make all', cwd='sub')) is None
    for l,ok in ((ledger(home),later), (ledger(home, 'two'),elsewhere)): assert bool(Approvals(ledger=l).decide(*make))==ok
    ap.set_mode('ask')
    assert bool(ap.decide(*make))==later, 'choosing a posture ends what is for the session alone'

def test_a_permission_that_cannot_be_stored_holds_for_the_session(home, capsys):
    l = ledger(home)
    (home/'cfg').write_text('no folder')
    l.path = home/'cfg/permissions.json'
    ap,asked = answering(scope='project', ledger=l)
    ap.request('run_shell', dict(command='make'))
    assert ap.grants and 'holds for this session' in capsys.readouterr().err

def test_a_no_that_is_stored_is_a_denial_of_that_call(home):
    ap,asked = answering(False, scope='project', ledger=ledger(home))
    assert not ap.request('run_shell', dict(command='make'))
    ap = Approvals(mode='auto', ledger=ledger(home))
    assert not ap.decide('run_shell', dict(command='make')) and ap.decide('run_shell', dict(command='make x'))

@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(words=st.lists(st.sampled_from(['git','status','push','x*','-f','a/b']), min_size=1, max_size=3), tail=st.sampled_from(['',' ','; touch P',' && x',' | tee P',' > P','\ntouch P',' $(x)',' `x`',' &',' #\rx','"','\\','\0']),
    head=st.sampled_from(['','X=1 ','(','! ','time ','\t']), mode=st.sampled_from(MODES))
def test_C172_C173_a_stored_command_never_lets_another_one_through(tmp_path, words, tail, head, mode):
    c = ' '.join(words)
    l = Ledger(tmp_path/'cfg', tmp_path)
    if not l.rules(): l.keep(parse_rule('run_shell(git status)'), 'person')
    got = Approvals(mode=mode, ledger=l).decide('run_shell', dict(command=head+c+tail))
    free = mode in ('auto',) or mode=='work' and simple(head+c+tail) is not None
    if got and not free: assert simple(head+c+tail)==['git','status'] and mode!='off'

def test_a_denial_of_the_config_beats_what_was_stored_and_what_is_answered(home):
    config(home, '[permissions]\ndeny = ["run_shell(rm *)"]\nallow = ["run_shell(rm x)"]\n')
    l = ledger(home)
    l.keep(Grant('run_shell', 'rm x', call=same('run_shell', dict(command='rm x'))), 'person')
    for m in MODES:
        ap,asked = answering(ledger=l, mode=m)
        ap.grant('*')
        for c in ('rm x','rm  x','"rm" x','true; rm x',"sh -c 'rm -rf y'"): assert ap.request('run_shell', dict(command=c)).answer is False
        assert not asked
    with pytest.raises(InvalidParams, match='take it out there'): ap.revoke(l.rules()[0])

# ---- further folders

@pytest.mark.parametrize('n,ok', [(MOST,True), (MOST+1,False)])
def test_at_most_32_folders(home, n, ok):
    ds = [home/f'd{i}' for i in range(n)]
    for d in [*ds, home/'cwd']: d.mkdir()
    if ok: assert vet(list(map(str, ds)), str(home/'cwd'), home/'cfg')==list(map(str, ds))
    else:
        with pytest.raises(InvalidParams, match='at most 32') as e: vet(list(map(str, ds)), str(home/'cwd'), home/'cfg')
        assert e.value.data['code']=='workspace_roots.too_many'

@pytest.mark.parametrize('name', ['id_rsa','ID_ED25519','.netrc','my.kdbx','.git-credentials'])
def test_a_folder_with_a_key_in_it_is_protected(home, name):
    (home/'d/sub').mkdir(parents=True); (home/'d'/name).write_text('')
    with pytest.raises(InvalidParams) as e: vet([str(home/'d')], str(home/'cwd'), home/'cfg')
    assert e.value.data==dict(code='workspace_roots.protected', path=str(home/'d'), index=0, field='additionalDirectories')
    assert vet([str(home/'d/sub')], str(home/'cwd'), home/'cfg')==[str(home/'d/sub')], 'a folder below it may be given'

def test_what_is_returned_is_where_a_link_leads(home):
    (home/'real').mkdir(); (home/'link').symlink_to('real')
    assert vet([str(home/'link')], str(home/'cwd'), home/'cfg')==[str(home/'real')]
    with pytest.raises(InvalidParams) as e: vet([str(home/'real'), str(home/'link')], str(home/'cwd'), home/'cfg')
    assert e.value.data['code']=='workspace_roots.overlap'

def test_the_homes_of_this_program_are_protected_with_all_around_them(home):
    (home/'cfg/sessions/x').mkdir(parents=True)
    for d in (home/'cfg/sessions/x', home/'cfg', home):
        with pytest.raises(InvalidParams) as e: vet([str(d)], str(home/'cwd'), home/'cfg')
        assert e.value.data['code']=='workspace_roots.protected'
