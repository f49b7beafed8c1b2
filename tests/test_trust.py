"What a person relies on when they let the agent work: looks that only look, permissions that say what they are, bounds that hold; each was once not so"
import subprocess
from test_context import on
from test_controls import CONFIG, again, conf, controlled, free, home, home_of_many, last_user, latest, lend, make, mode, now, put, refused, touch
from wire import *
from ramabana_acp.agent.controls import is_plan
from ramabana_acp.core import Token
from ramabana_acp.workspace.approvals import Approvals
from ramabana_acp.workspace.host import WorkspaceHost
from ramabana_acp.workspace.ledger import Ledger, parse_rule
from ramabana_acp.workspace.simple import reaches_out, read_only

def sh(c, d): return subprocess.run(['sh','-ec',c], cwd=d, check=True, capture_output=True, env={**os.environ, 'HOME':str(d), 'GIT_CONFIG_NOSYSTEM':'1'})
ME = 'git config user.email a@b; git config user.name a'
TRAP = 'git config filter.x.clean "sh -c \'touch %s; cat\'"'

def trapped(d, *, trap=True):
    "A repository in `d` that holds another one, whose configuration names a program; the file that it makes"
    d.mkdir(parents=True, exist_ok=True)
    sh(f'git init -q; {ME}; echo a >a; mkdir emb; cd emb; git init -q; {ME}; echo b >b; echo "* filter=x" >.gitattributes; git add .; git commit -qm b; cd ..; git add a emb; git commit -qm a', d)
    if trap: sh(TRAP%(d/'P'), d/'emb')
    (d/'emb/b').write_text('changed\n'); os.utime(d/'emb/b', (1e9, 1e9))
    return d/'P'

# ---- looks that run unasked

def test_a_look_does_not_run_what_a_submodule_configures(free):
    s = free.session([[tool('run_shell', 'a', command='git status')], [tool('run_shell', 'b', command='git diff --stat')], OK], permit='reject_once')
    p = trapped(s.root)
    put(s, 'tool_approval', 'auto'); s.prompt()
    assert [q['toolCall']['toolCallId'] for q in s.asks]==['a','b'] and not p.exists()
    sh('git status', s.root)
    assert p.exists(), 'the trap works at all'

@pytest.mark.parametrize('how', ['plain','v4','split','deep','file'])
def test_a_submodule_is_found_however_its_index_is_kept(tmp_path, how):
    d = tmp_path.resolve()/'r'
    trapped(d/'emb2' if how=='deep' else d, trap=False)
    if how=='deep': sh(f'git init -q; {ME}; git add emb2; git commit -qm x', d)
    if how=='v4': sh('git update-index --index-version 4', d)
    if how=='split': sh('git update-index --split-index', d)
    if how=='file': sh('git submodule -q add ./emb sub 2>/dev/null || git -c protocol.file.allow=always submodule -q add ./emb sub', d)
    inner = d/'emb2/emb' if how=='deep' else d/('sub' if how=='file' else 'emb')
    assert not reaches_out(str(d))
    sh(TRAP%'P', inner)
    assert reaches_out(str(d)) and reaches_out(str(inner))

def test_a_folder_that_only_looks_like_a_repository_hides_none(tmp_path):
    d = tmp_path.resolve()
    sh(f'git init -q; {ME}; mkdir sub sub/.git; {TRAP%(d/"P")}; echo "* filter=x" >.gitattributes; echo a >sub/a; git add .gitattributes sub/a; git commit -qm a; rm -f P', d)
    ap = Approvals(mode='work', host=WorkspaceHost([d/'sub']))
    def asks(): return ap.decide('run_shell', dict(command='git status')) is None
    assert asks() and ap.decide('run_shell', dict(command='ls'))
    (d/'sub/.git/HEAD').write_text('ref: nowhere\n'); (d/'sub/.git/objects').mkdir(); (d/'sub/.git/refs').mkdir()
    assert asks()
    (d/'sub/.git/HEAD').write_text('ref: refs/heads/main\n')
    assert not asks() and sh('git rev-parse --git-dir', d/'sub').stdout==b'.git\n', 'git looks no further'

def test_a_look_does_not_show_files_of_a_folder_that_a_repository_says_it_is_about(free):
    d = free.home/'elsewhere'
    d.mkdir(exist_ok=True); (d/'private').write_text('hush\n')
    s = free.session([[tool('run_shell', 'a', command='git diff')], OK], permit='reject_once')
    sh(f'git init -q; {ME}; git update-index --add --cacheinfo 100644,$(git hash-object -w --stdin </dev/null),private; git commit -qm a; git config core.worktree {d}', s.root)
    assert '+hush' in subprocess.run(['git','diff'], cwd=s.root, capture_output=True, text=True).stdout, 'the trap works at all'
    put(s, 'tool_approval', 'auto'); s.prompt()
    assert len(s.asks)==1 and 'hush' not in s.heard()

OTHER = f'git init -q other; cd other; {ME}; echo private >a; git add a; git commit -qm a; cd ..; '
ELSEWHERE = dict(file='mkdir r; echo "gitdir: $PWD/other/.git" >r/.git', link='mkdir r; ln -s $PWD/other/.git r/.git', inner='git init -q r; rm -r r/.git/objects r/.git/refs; ln -s $PWD/other/.git/objects $PWD/other/.git/refs r/.git',
    common='git init -q r; echo $PWD/other/.git >r/.git/commondir', blame='git init -q r; git -C r config blame.ignoreRevsFile $PWD/other/a', work='git init -q r; git -C r config core.worktree "$PWD/other"')
AT_HOME = dict(worktree='git -C other worktree add -q ../r', bare='mkdir r; git clone -q --bare other r/.bare; echo "gitdir: ./.bare" >r/.git', own='git init -q r; git -C r config core.worktree "$PWD/r"', clone='git clone -q other r',
    submodule=f'git init -q up; cd up; git -c protocol.file.allow=always submodule -q add ../other r 2>&1; cd ..; mv up r; cd r; {ME}; git commit -qm a')

@pytest.mark.parametrize('how', [*ELSEWHERE, *AT_HOME])
def test_only_a_repository_that_is_at_home_here_is_looked_at_unasked(tmp_path, how):
    d = tmp_path.resolve()
    sh(OTHER+{**ELSEWHERE, **AT_HOME}[how], d)
    ap = Approvals(mode='work', host=WorkspaceHost([d/'r']))
    for cwd in ('.', *(['r'] if how=='submodule' else [])): assert bool(ap.decide('run_shell', dict(command='git log -p', cwd=cwd)))==(how in AT_HOME)

def test_what_git_cannot_tell_is_asked_about(tmp_path):
    d = tmp_path.resolve()
    trapped(d, trap=False)
    (d/'.git/HEAD').write_text('nonsense\n')
    assert reaches_out(str(d))

def test_comparing_two_folders_is_no_look(free):
    "It shows every file in them, those with secrets included"
    s = free.session([[tool('run_shell', 'a', command='diff -N . empty')], OK], {'secrets.json':'{"k":"hush"}', 'empty/x':''}, permit='reject_once')
    put(s, 'tool_approval', 'auto'); s.prompt()
    assert len(s.asks)==1 and 'hush' not in s.heard() and not read_only('diff a b')

@pytest.mark.parametrize('p', ['.bashrc','.gitconfig','.config/git/config','.envrc','sub/.vscode/tasks.json','.husky/pre-commit'])
def test_an_edit_of_what_a_shell_or_git_reads_by_itself_is_asked_about(tmp_path, p):
    ap = Approvals(mode='work', host=WorkspaceHost([tmp_path]))
    assert ap.kind('create_file', dict(path=p))==ap.kind('create_file', dict(path=str(tmp_path/p)))=='act'

def test_a_folder_that_was_opened_on_purpose_is_worked_in_whatever_it_is_called(tmp_path):
    d = tmp_path.resolve()/'.config/nvim'
    (d/'lua').mkdir(parents=True); (d/'.idea').symlink_to('lua'); (tmp_path/'spelled').symlink_to(d)
    for root in (d, tmp_path/'spelled'):
        ap = Approvals(mode='edits', host=WorkspaceHost([root]))
        assert [ap.kind('create_file', dict(path=str(p))) for p in ('init.lua', d/'init.lua', root/'lua/a', '.idea/a', d/'.idea/a', root/'.idea/a')]==['edit']*3+['act']*3

def test_opening_a_place_for_keys_is_asked_about_in_every_posture(free):
    "And a home holds one"
    (free.home/'.ssh').mkdir(exist_ok=True); (free.home/'lib/src').mkdir(parents=True, exist_ok=True)
    s = free.session([[tool('add_root', f't{i}', path=p)] for i,p in enumerate((str(free.home/'.ssh'), str(free.home), '/', str(free.home/'lib')))]+[OK], permit='reject_once')
    put(s, 'tool_approval', 'yolo'); s.prompt()
    assert [q['toolCall']['toolCallId'] for q in s.asks]==['t0','t1','t2'] and 'secrets' in json.dumps(s.asks[0]) and str(free.home/'lib') in s.results()[3]

# ---- rules

@pytest.mark.parametrize('c', ['git --no-pager push','git -C . push','git -c a=b -C x push -f','git -c a=b \\\n push','sudo git -C . push'])
def test_a_denial_is_not_dodged_by_options_between_its_words(free, c):
    conf(free.home).write_text(conf(free.home).read_text()+'[permissions]\ndeny = ["run_shell(git push *)"]\n')
    s = free.session([[tool('run_shell', 'a', command=c)], OK])
    put(s, 'tool_approval', 'yolo'); s.prompt()
    assert 'a rule denies it' in s.results()[0]
    ap = Approvals(mode='auto')
    ap.grant('run_shell', 'git push *', 'deny')
    assert all(ap.decide('run_shell', dict(command=o)) for o in ('git stash push','git commit -m push','git -v log; echo push','git '+'-a '*5000))

@pytest.mark.parametrize('posture', ['auto','yolo'])
def test_what_is_denied_to_view_file_is_shown_by_no_search_and_no_command_that_names_it(free, posture):
    conf(free.home).write_text(conf(free.home).read_text()+'[permissions]\ndeny = ["view_file(private/*)"]\n')
    cs = ['cat private/a','cat ./private/a','cat < "private/a"','cd private/a; ls','grep hush private/a']
    s = free.session([[tool('grep', 'g0', pattern='hush'), tool('grep', 'g1', pattern='hush', path='private/a'), *(tool('run_shell', f'c{i}', command=c) for i,c in enumerate(cs)), tool('run_shell', 'ok', command='cat open')], OK],
        {'private/a':'hush hush\n', 'open':'hush\n'})
    put(s, 'tool_approval', posture); s.prompt()
    rs = s.results()
    assert 'hush hush' not in s.heard() and 'open:1: hush' in rs[0] and '1 file that may not be shown' in rs[0] and all('a rule denies it' in r for r in rs[1:-1]) and rs[-1].strip()=='hush'

@pytest.mark.parametrize('verdict', ['allow','deny'])
def test_a_rule_with_quotes_means_the_words_in_them(verdict):
    ap = Approvals(mode='ask' if verdict=='allow' else 'auto')
    for p in ('git commit -m "a b"', "make 'all'", 'echo "*"'): ap.grant('run_shell', p, verdict)
    said = [ap.rule('run_shell', dict(command=c)) for c in ('git commit -m "a b"', "git  commit -m 'a b'", 'make all', 'make "all"', "echo '*'", 'ls')]
    assert said==[verdict]*5+[None]
    if verdict=='allow': assert ap.rule('run_shell', dict(command='echo hi')) is None, 'a star in quotes is a star'

@pytest.mark.parametrize('rule', ['edit_file','edit_file(*)','edit_file(*.py)','*'])
def test_a_permission_for_a_project_with_a_wildcard_stays_in_the_project(tmp_path, rule):
    d = tmp_path.resolve()
    for n in 'pq': (d/n).mkdir()
    Ledger(d/'cfg', d/'p').keep(parse_rule(rule), 'project')
    ap = Approvals(host=WorkspaceHost([d/'p', d/'q']), ledger=Ledger(d/'cfg', d/'p'))
    def may(p): return bool(ap.decide('edit_file', dict(path=str(p), old='', new='')))
    assert may('a.py') and may(d/'p/sub/a.py') and not may(d/'q/a.py') and not ap.decide('add_root', dict(path='/srv'))

def test_what_a_card_rejected_for_the_session_stays_rejected_in_another_posture(free):
    s = free.session([[touch(0, 'y')], OK, [touch(1, 'y')], [touch(2, 'z')], OK], permit='reject_call')
    s.prompt(); put(s, 'tool_approval', 'yolo'); s.prompt()
    assert len(s.asks)==1 and s.read('y') is None and s.read('z')=='' and 'a rule denies it' in s.results()[1]

def test_every_write_is_listed_and_can_be_taken_back(free):
    s = free.session([[make(0)], OK, [make(1)], OK], permit='allow_always')
    s.prompt(); s.prompt('/permissions')
    assert s.said().endswith('1. allow `every write in the open folders`, until this session ends')
    s.prompt('/permissions keep 1 project')
    assert 'ends with the session' in s.said()
    s.prompt('/permissions revoke 1'); s.ed.permit = 'reject_once'; s.prompt()
    assert len(s.asks)==2 and s.read('f1') is None

def test_permissions_takes_no_rule_that_nothing_fits_and_says_when_no_tool_has_its_name(free):
    s = free.session()
    def say(l): n = len(s.said()); s.prompt(l); return s.said()[n:]
    for c in ('a; b','ls > x','X=1 make','echo $x'): assert 'is none' in say(f'/permissions allow run_shell({c})')
    assert 'No permission' in say('/permissions list')
    assert 'no tool has this name' in say('/permissions deny runshell(rm *)') and 'no tool has this name' in say('/permissions')
    assert 'no tool' not in say('/permissions deny *_file(x)') and 'no tool' not in say('/permissions allow view_file')
    for bad in ('revoke ²','revoke ٣٣','revoke 0','revoke '+'9'*5000,'keep ² project','foo','revoke all'): assert 'N is a number' in say(f'/permissions {bad}'), bad
    assert 'One at a time' in say('/permissions revoke 1 2') and say('/permissions').count('deny')==2

def test_what_a_card_allowed_is_listed_as_what_it_is(free):
    s = free.session([[tool('run_shell', 'a', command='echo *')], [tool('run_shell', 'b', command='make', cwd='sub')], OK], {'sub/x':''}, permit='allow_call')
    s.prompt(); s.prompt('/permissions')
    assert '1. allow `run_shell(echo *, exactly)`, until' in s.said() and '2. allow `run_shell(make, in sub)`, until' in s.said()

@pytest.mark.parametrize('c', ['\u200b','\u2060','\ufeff','\u061c','\u2028','\u202e'])
def test_a_character_that_nobody_sees_is_shown_on_a_card(free, c):
    s = free.session([[tool('run_shell', 'a', command=f'ls d{c}ocs')], OK], permit='reject_once')
    s.prompt()
    q, = s.asks
    assert c not in q['toolCall']['title'] and f'\\u{ord(c):04x}' in '\n'.join(strings(q['toolCall'].get('content') or []))+q['toolCall']['title']

# ---- slash commands

def test_words_after_plan_are_what_is_planned(free):
    s = free.session([[make(0)], [dict(text='## Plan\nA tower.')], OK], permit='reject_once')
    assert s.stop('/plan build a tower')=='end_turn' and latest(s)['mode']=='plan'
    assert last_user(s.requests[0]).startswith('build a tower') and 'Plan mode' in last_user(s.requests[0]) and 'plan mode' in s.results(1)[0] and s.read('f0') is None
    s.close()
    t = again(free, s)
    assert [u['content']['text'] for u in t.told if u['sessionUpdate']=='user_message_chunk']==['/plan build a tower'], 'the person sees what they typed'
    t.prompt('/plan off')
    assert latest(t)['mode']=='normal' and len(t.requests)==2

def test_what_is_typed_in_capitals_is_the_same_choice(free):
    s = free.session()
    for l in ('/MODE Plan','/effort HIGH','/Model PLAIN'): s.prompt(l)
    assert (latest(s)['mode'], latest(s)['model'])==('plan','plain') and 'The effort is now `high`' in s.said()

@pytest.mark.parametrize('text,line,why', [('[context]\ncompact_at = 7\n','/context','compact_at'), ('models = 5\n','/model','models must be a table'), ('[oh\n','/model','line 1'), ('[oh\n','/permissions','line 1'), ('[permissions]\ndeny = ["rm ("]\n','/permissions','config.toml'), ('', '/mode goal', 'normal, plan')])
def test_what_goes_wrong_in_a_command_is_its_answer(free, text, line, why):
    s = free.session()
    if text: conf(free.home).write_text(text)
    assert s.stop(line)=='end_turn' and why in s.said() and 'was not done' in s.said()

# ---- planning

ANSWERS = {'It has two parts:\n\n1. it reads\n2. it writes':0, 'Which of the two do you mean?':0, 'I have no plan yet. First:\n- which one?':0, '```py\n# plan the route\nplan:\n```\nThat is how.':0, 'You could plan it.':0,
    '## Plan\n1. read':1, 'First I looked.\n\n### The plan for a.py\nChange it. Shall I?':1, 'This is my plan:\n- read':1, '**Plan**\n\nread':1, 'Plan:\nread':1}

def test_only_a_plan_has_a_card(free):
    assert {t:int(is_plan(t)) for t in ANSWERS}==ANSWERS
    s = free.session([[dict(text='It has two parts:\n\n1. it reads\n2. it writes')], [dict(text='## Plan\n1. read')]], permit='reject_once')
    mode(s, 'plan')
    s.prompt('how does it work?')
    assert not s.asks and latest(s)['mode']=='plan'
    s.prompt('then change it')
    assert len(s.asks)==1 and '"## Plan"' in last_user(s.requests[1])

# ---- bounds

@pytest.mark.parametrize('which', ['turn','session'])
def test_a_bound_on_calls_holds_within_one_answer(free, which):
    conf(free.home).write_text(conf(free.home).read_text()+f'[budget.{which}]\ncalls = 2\n')
    s = free.session([[make(i) for i in range(4)], OK])
    put(s, 'tool_approval', 'auto')
    r = s.prompt()
    assert sorted(p.name for p in s.root.iterdir())==['f0','f1'] and r['stopReason']==dict(turn='max_turn_requests', session='end_turn')[which]
    m = r['_meta']['ramabana']
    assert '2 tool calls' in m['turnOutcome']['reason'] and m['usage']['turn']['toolCalls']==2 and len(s.cards)==2
    conf(free.home).write_text(CONFIG.format(base=free.models.base))
    s.prompt('go on')
    assert all('not run' in t for t in s.results()[2:]) and len(s.results())==4

def test_calls_that_a_failure_kept_from_beginning_are_told_as_not_run(tmp_path):
    from ramabana_acp.agent.turn import Turn
    from ramabana_acp.models.messages import assistant, user
    from ramabana_acp.tools.tool import Tool
    def go(n:int): "Work"; return 'done'
    def save(part=None, **kw):
        if part and len(part)==1: raise OSError('the disk is full')
    t = Turn(None, [user('go')], {'go':Tool(go, 'tool')}, WorkspaceHost([tmp_path]), save=save)
    cs = [dict(type='call', id=f'c{i}', name='go', args=dict(n=i)) for i in range(3)]
    with pytest.raises(OSError): t.run_calls(assistant(cs))
    assert [r['text'][:18] for r in t.history[-1]['results']]==['done','ERROR: not run: th','ERROR: not run: th']

@pytest.mark.parametrize('bad', ['budget = 5\n','[budget]\ncost = "1"\n','[budget.turns]\ncost = "1"\n','[budget]\nturn = 5\n'])
def test_a_budget_that_would_hold_nothing_is_named_and_nothing_is_spent(free, bad):
    s = free.session([OK])
    conf(free.home).write_text(bad+CONFIG.format(base=free.models.base).partition('\n\n')[2] if bad[0]!='[' else CONFIG.format(base=free.models.base)+bad)
    with pytest.raises(Remote, match='budget'): s.prompt()
    assert not s.requests

def test_usage_after_reopening_counts_the_summary_too(free):
    s = free.session([*[[dict(text='word '*300)] for _ in range(4)], [dict(text='Sum.')], OK])
    for _ in range(4): s.prompt('w '*200)
    s.prompt('/compact'); s.prompt('on')
    def usage(s): n = len(s.said()); s.prompt('/usage'); return s.said()[n:].split('This session')[1]
    was = usage(s)
    s.close()
    assert usage(again(free, s))==was and '6 requests' in was

def test_after_a_summary_briefing_and_tools_still_count(tmp_path):
    from ramabana_acp.models.messages import assistant, text, user
    ag = on(tmp_path, [[dict(text='Sum.')]], [o for i in range(9) for o in (user(f'{i} '*900), {**assistant([text('Yes.')]), 'usage':dict(input=900*i, output=9)})])
    assert ag.room.make(ag.history, Token(), why='asked')
    n = ag.room.used()
    assert n>sum(ag.room.base().values())>300
    ag.model = ag.model._replace(window=n-100, max_output=0)
    assert ag.room.due(ag.history), 'the next request is larger than the window'

# ---- values that are echoed

def test_a_refused_value_is_named_alike_on_every_axis_and_not_repeated_whole(free):
    s = free.session()
    for id in ('mode','effort','agent_preset','work_mode','tool_approval'):
        e = refused(free, 'session/set_config_option', sessionId=s.sid, configId=id, value='x'*9999)
        assert 'invalid value' in str(e) and len(str(e))<300 and e.data['configId']==dict(work_mode='agent_preset').get(id, id) and len(e.data['value'])<100

# ---- the ceiling where `mk` makes the agent

MAIN = '''
import asyncio, sys
from ramabana_acp.choices import ceiling_of
from ramabana_acp.editor.acp import AcpAgent
from ramabana_acp.editor.hello import Start
from ramabana_acp.editor.host import mk_agent
from ramabana_acp.editor.serve import serve
def mk(roots, **kw):
    ag,host = mk_agent(roots, **kw)
    return Plain(ag) if '--plain' in sys.argv else ag, host
class Plain:
    def __init__(self, ag): self.__dict__['ag'] = ag
    def __setattr__(self, k, v): setattr(self.ag, k, v)
    def __getattr__(self, k):
        if k=='controls': raise AttributeError(k)
        return getattr(self.ag, k)
asyncio.run(serve(AcpAgent(mk=mk, start=Start('scripted/'+sys.argv[1], None, None, ceiling_of(sys.argv[2])))))
'''

@pytest.mark.parametrize('flag,row', [('read-only','off'), ('ask','ask'), ('acceptEdits','edits')])
@pytest.mark.parametrize('kind', ['', '--plain'])
def test_the_ceiling_holds_for_an_agent_that_mk_makes(home, flag, row, kind):
    (home/'script.json').write_text(json.dumps([[make(0), touch(1)], OK]*2))
    with agent(kind or '--', cmd=[sys.executable, '-c', MAIN, str(home/'script.json'), flag], home=home, **BARE) as a:
        s = a.session(permit='reject_once')
        s.prompt()
        assert (s.read('f0')=='x')==(row=='edits') and s.read('f1') is None and len(s.asks)==dict(off=0, ask=2, edits=1)[row]
        if kind: return
        e = refused(a, 'session/set_config_option', sessionId=s.sid, configId='tool_approval', value='yolo')
        assert e.data['code']=='acp.tool_approval.above_ceiling' and latest(s)['tool_approval']==dict(off='readOnly').get(row, 'ask')

# ---- the servers an editor hands over

@pytest.mark.parametrize('server,why', [(dict(command='x', args=[], env=[]), '[0] has no name'), (dict(name=' ', command='x'), '[0] has no name'), (dict(name='x'), '[0].command is required'), (dict(name='x', command=''), '[0].command is required'),
    (dict(name='x', type='http', headers=[]), '[0].url is required'), (dict(name='x', type='acp'), "unsupported transport 'acp'"), (dict(name='x', type=5), 'unsupported transport')])
def test_a_server_that_could_never_start_is_refused(free, server, why):
    e = refused(free, 'session/new', cwd=str(free.home), mcpServers=[server])
    assert why in str(e) and e.data['field'].startswith('mcpServers[0]')

# ---- a record from a stranger

def test_a_record_that_somebody_has_changed_is_named_with_the_line(tmp_path):
    from ramabana_acp.core import InvalidParams
    from ramabana_acp.models.record import Recorder, read
    Recorder(tmp_path/'r').close()
    head,end = (tmp_path/'r').read_text(),'{"i":3,"t":0,"k":"future"}\n'
    for l in ('{"i":2,"k":"ask","n":1}','{"i":2,"k":"data","n":1}','{"i":2,"k":"answer","n":1,"status":"ok","headers":{}}','{"i":2}','{"k":"wire"}','[]'):
        (tmp_path/'r').write_text(head+l+'\n'+end)
        with pytest.raises(InvalidParams, match='damaged in line 2'): read(tmp_path/'r')
    (tmp_path/'r').write_text(head+end+'{"i":4,"k":"as')
    assert [o['k'] for o in read(tmp_path/'r')]==['head','future']

def test_a_record_brings_no_posture_that_lets_things_run_unasked(home):
    from ramabana_acp.models.record import read
    with agent('--record', str(home/'rec'), '--permission-mode', 'bypassPermissions', script=[[touch(0)], OK], home=home, **BARE) as a: a.session().prompt()
    assert read(home/'rec')[0]['options']['permission_mode']=='bypassPermissions'
    with agent('replay', str(home/'rec'), home=home, **BARE) as a:
        a.n = 5
        s = a.session()
        assert now(s.result['configOptions'])['tool_approval']=='ask' and 'bypassPermissions' in a.stderr
    r = subprocess.run([*PYTHON, 'replay', '--help'], capture_output=True, text=True)
    assert r.returncode==0 and '--model' not in r.stdout
