"Permissions that outlive a session, and the folders a session may be given: in process, in every corner"
import json, os, subprocess, sys
from pathlib import Path
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from ramabana_acp.core import Err, InvalidParams
from ramabana_acp.workspace.approvals import MODES, Approvals
from ramabana_acp.workspace.gate import Grant, same
from ramabana_acp.workspace.host import WorkspaceHost
from ramabana_acp.workspace.ledger import Ledger, parse_rule, rule_text
from ramabana_acp.workspace.roots import MOST, vet, within
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

KEEP = '''import sys
from ramabana_acp.workspace.ledger import Ledger, parse_rule
home,i = sys.argv[1:]
l = Ledger(home+'/cfg', f'{home}/p{i}')
print('ready', flush=True)
sys.stdin.readline()
for j in range(10): l.keep(parse_rule(f'run_shell(c{i} {j})'), 'project')
'''

def test_programs_that_store_at_the_same_time_lose_nothing(home):
    ps = [subprocess.Popen([sys.executable, '-c', KEEP, str(home), str(i)], stdin=-1, stdout=-1, text=True) for i in range(3)]
    for p in ps: assert p.stdout.readline()=='ready\n'
    for p in ps: p.stdin.write('go\n'); p.stdin.flush()
    for p in ps: p.communicate(timeout=60); assert p.returncode==0
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

# ---- what a rule must not reach, and what must not get round it

@pytest.fixture
def places(home):
    "Two projects, a folder of libraries with a link out of it, and a second spelling of the first project"
    for d in ('p/docs','q/docs','libs','keys','cfg'): (home/d).mkdir(parents=True)
    (home/'libs/link').symlink_to(home/'keys'); (home/'spelled').symlink_to('p')
    return home

def opened(d, *roots, mode='ask'): return Approvals(mode=mode, host=WorkspaceHost([d/r for r in roots]), ledger=Ledger(d/'cfg', d/roots[0]))
def edit(p): return 'edit_file',dict(path=str(p), old='', new='')

def test_a_grant_for_folders_is_not_led_out_by_a_link(places):
    ap = opened(places, 'p')
    ap.grant('add_root', str(places/'libs/*'))
    assert ap.decide('add_root', dict(path=str(places/'libs/link'))) is None and ap.decide('add_root', dict(path=str(places/'libs/x')))

@pytest.mark.parametrize('pat', ['spelled/docs/*','p/docs/*','P/Docs/*','spelled/docs'])
def test_a_denial_holds_however_the_person_has_spelled_the_place(places, pat):
    ap = opened(places, 'spelled', mode='auto')
    ap.grant('edit_file', str(places/pat), 'deny')
    for p in ('docs/x','./docs/../docs/x',places/'p/docs/x',places/'spelled/docs/x'): assert bool(ap.decide(*edit(p)))==(pat=='spelled/docs')
    assert ap.decide(*edit('docs')).answer is (pat!='spelled/docs')

@pytest.mark.parametrize('c', ["git $'push'",'git $"push" x','git pu\\\nsh','GIT push'])
def test_a_denial_is_not_dodged_by_another_way_to_write_a_word(c):
    ap = Approvals(mode='auto')
    ap.grant('run_shell', 'git push *', 'deny')
    assert not ap.decide('run_shell', dict(command=c))

def test_a_permission_for_a_project_is_not_for_the_other_folders_of_a_session(places):
    for r in ('edit_file(docs/*)','run_shell(make *)'): Ledger(places/'cfg', places/'p').keep(parse_rule(r), 'project')
    ap = opened(places, 'p', 'q')
    for p,ok in (('docs/x',True), (places/'q/docs/x',False)): assert bool(ap.decide(*edit(p)))==ok
    for d,ok in ((None,True), ('docs',True), (places/'p',True), (places/'q',False)): assert bool(ap.decide('run_shell', dict(command='make all', cwd=d and str(d))))==ok

@pytest.mark.parametrize('mode', ['edits','work'])
def test_an_edit_of_what_runs_by_itself_or_of_the_permissions_themselves_is_no_edit(places, mode):
    ap = opened(places, '.', mode=mode)
    for p in ('cfg/permissions.json','cfg/config.toml','cfg/sessions/x/y/transcript.jsonl','p/.zed/settings.json','.nvim.lua','.dir-locals.el','.MCP.json'): assert ap.decide(*edit(p)) is None, p
    assert ap.decide(*edit('p/docs/cfg'))

@pytest.mark.parametrize('key', ['diff.external','diff.x.textconv','filter.x.clean','gpg.program','include.path','includeIf.gitdir:/.path','DIFF.x.Command'])
def test_a_look_at_a_repository_that_names_programs_is_no_look(places, key):
    subprocess.run(['git','init','-q',places/'p'], check=True)
    ap,look = opened(places, 'p', mode='work'),('run_shell', dict(command='git diff', cwd='docs'))
    assert ap.decide(*look)
    subprocess.run(['git','-C',places/'p','config',key,'/bin/true'], check=True)
    assert ap.decide(*look) is None and ap.decide('run_shell', dict(command='ls'))

@pytest.mark.parametrize('c', ['git diff',"'git' diff",'git status'])
def test_a_look_runs_no_hook(places, c):
    from ramabana_acp.workspace.process import run
    p = places/'p'
    run('git init -q; touch a; git add a; git -c user.name=a -c user.email=a@b commit -qm a; printf "#!/bin/sh\\ntouch %s\\n" "$PWD/ran" > .git/hooks/post-index-change; chmod +x .git/hooks/*', p)
    os.utime(p/'a', (1e9, 1e9)) # or there is nothing to refresh
    assert WorkspaceHost([p]).run_cmd(c)[0]==0 and not (p/'ran').exists()

@pytest.mark.parametrize('more', [dict(call=[]), dict(call='xy'), dict(call=['a']), dict(project=5), dict(Project='/x')])
def test_an_entry_that_might_mean_less_than_it_would_do_refuses(home, more):
    ledger(home).keep(parse_rule('run_shell'), 'person')
    file(home).write_text(json.dumps([json.loads(file(home).read_text())[0]|more]))
    assert 'permissions.json' in Approvals(mode='auto', ledger=ledger(home)).request('run_shell', dict(command='make')).reply()

def test_keeping_what_is_kept_loses_nothing_and_a_ceiling_lets_nobody_revoke_a_denial(home):
    from types import SimpleNamespace
    from ramabana_acp.agent.commands import permissions
    from ramabana_acp.choices import ceiling_of
    ap = Approvals(ledger=ledger(home))
    for v,s in (('deny','project'), ('allow','person')): ap.ledger.keep(parse_rule('run_shell(make)', v), s)
    def say(l, top=None): return permissions(SimpleNamespace(approvals=ap, controls=SimpleNamespace(value=lambda axis: 'ask', ceiling=ceiling_of(top))), l)
    assert 'Kept' in say('keep 1 project') and 'Kept' in say('keep 2 person') and len(ap.rules())==2
    assert 'ceiling' in say('revoke 1', 'ask') and 'Revoked' in say('revoke 2', 'ask') and [g.verdict for g in ap.rules()]==['deny']
    assert 'Revoked' in say('revoke 1')

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

def test_a_protected_folder_is_known_by_what_it_is_and_not_by_its_spelling(home, monkeypatch):
    monkeypatch.setenv('HOME', str(home/'me'))
    for d in ('me/.ssh/sub','me/work','old/.ssh','cwd'): (home/d).mkdir(parents=True)
    def code(p):
        try: return vet([str(p)], str(home/'cwd'), home/'cfg') and 'ok'
        except InvalidParams as e: return e.data['code'].split('.')[1]
    assert [code(p) for p in (f'{home}/me/.ssh/', home/'me/.ssh/sub', f'{home}/me/work/../.ssh', home/'old', home/'me/work')]==['protected']*4+['ok']
    (home/'other name').symlink_to('me/.ssh')
    assert within(str(home/'other name/sub'), str(home/'me/.ssh')) and not within(str(home/'old'), str(home/'me'))
