"The gate's table, row by row and as a property; and that everything but a yes is a no."
import os, random, subprocess, threading, time
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
import pytest
from hypothesis import strategies as st
from width import examples, few_or_many, given
from ramabana_acp.core import InvalidParams, Refused, Token
from ramabana_acp.workspace.approvals import Approvals
from ramabana_acp.workspace.gate import GATED, MODES
from ramabana_acp.workspace.simple import read_only, simple

class Place:
    "A host of one folder with a link that leads out of it"
    def __init__(self, root):
        self.roots = [Path(os.path.realpath(root))]
        self.out = self.roots[0].with_name(self.roots[0].name+'-out')
        self.out.mkdir(exist_ok=True)
        (self.roots[0]/'src').mkdir(exist_ok=True)
        if not (self.roots[0]/'leads').is_symlink(): (self.roots[0]/'leads').symlink_to(self.out)
        if not (self.roots[0]/'link').is_symlink(): (self.roots[0]/'link').symlink_to('.env')
    def check(self, path, **kw):
        p = Path(os.path.realpath(self.roots[0]/path))
        if not p.is_relative_to(self.roots[0]): raise Refused(f'{p} is outside')
        return p
    def credential(self, path): return os.path.basename(os.path.realpath(self.roots[0]/path)) in ('.env','id_rsa')

@pytest.fixture(scope='module')
def host(tmp_path_factory): return Place(tmp_path_factory.mktemp('root'))

# What each row says of each column: r refused, ? asked, + runs
ROWS = dict(off='rrr', rules='rrr', ask='???', edits='+??', work='++?', auto='+++')
COLS = [dict(edit_file=dict(path='src/a.py', old='1', new='2'), create_file=dict(path='b', text='')),
        dict(run_shell=dict(command='git status'), **{'run_shell ':dict(command='cat src/a.py', cwd='src')}),
        {'run_shell':dict(command='make'), 'add_root':dict(path='/tmp'), 'mcp__x__write':dict(a=1), 'create_file':dict(path='../x',
            text=''),
         'edit_file':dict(path='leads/x', old='', new=''), 'run_shell ':dict(command='cat ../x'), 'run_shell  ':dict(command='ls',
         cwd='/'),
         'edit_file ':dict(path='.git/config', old='', new=''), 'create_file ':dict(path='src/.GIT/hooks/x', text='')}]
TABLE = [(m, i, n.strip(), a) for m in MODES for i,c in enumerate(COLS) for n,a in c.items()]

def gate(host, mode, **kw): return Approvals(tools=['mcp__x__write'], mode=mode, host=host, **kw)
def sign(ask): return '?' if ask is None else '+' if ask else 'r'

@pytest.mark.parametrize('mode,col,name,args', TABLE, ids=[f'{m}-{("edit","look","act")[i]}-{n}-{list(a.values())[0]}' for m,i,n,
    a in TABLE])
def test_each_row_and_column_of_the_table(host, mode, col, name, args):
    assert sign(gate(host, mode).decide(name, args))==ROWS[mode][col]
    ap = gate(host, mode)
    ap.grants.append(_granted(name, args))
    assert sign(ap.decide(name, args))==('r' if mode=='off' else '+'), 'a grant for this call holds in every row but off'
    ap.grant('*', '*', 'deny')
    assert sign(ap.decide(name, args))=='r', 'a denial holds in every row'

def _granted(name, args):
    from ramabana_acp.workspace.gate import Grant, same
    return Grant(name, '', 'allow', False, same(name, args))

paths = st.sampled_from(['a.py','src/a.py','../x','/etc/passwd','leads/x','.git/config','.env','link','src/../.env','', 'a\0b',
    '~/.ssh/id_rsa'])
commands = st.one_of(st.sampled_from(['ls','cat .env','cat a.py','git status','git status; touch P','make','rm -rf x','cat ../x',
    'ls $(x)','','git push', 'grep x link']), st.text(max_size=12))
calls = st.one_of(
    st.tuples(st.sampled_from(['edit_file','create_file','view_file','add_root']), st.fixed_dictionaries(dict(path=paths))),
    st.tuples(st.just('run_shell'), st.fixed_dictionaries(dict(command=commands), optional=dict(cwd=paths))),
    st.tuples(st.sampled_from(['mcp__x__write','mcp__x__read']), st.dictionaries(st.sampled_from(['path','a']), st.one_of(paths,
        st.integers()), max_size=2)),
    st.tuples(st.sampled_from(['edit_file','run_shell']), st.dictionaries(st.sampled_from(['path','command']), st.one_of(st.none(),
        st.integers(), st.lists(st.text()))))) 
rules = st.lists(st.tuples(st.sampled_from(['*','edit_file','run_shell','mcp__x__*']), st.sampled_from(['*','git status','git *',
    'src/*','ls','cat *']), st.sampled_from(['allow','deny'])), max_size=3)
STRICT = {'r':0, '?':1, '+':2}

@few_or_many(150, 1500)
def test_no_call_gets_a_stricter_answer_in_a_lower_row(host, n):
    @examples(n)
    @given(call=calls, force=st.booleans(), before=st.integers(0, 3), rules=rules, policy=st.sampled_from([None,'allow','ask','deny',
        'junk',KeyError]))
    def check(call, force, before, rules, policy):
        def pol(name, args):
            if policy is KeyError: raise KeyError(name)
            return policy
        got = []
        for m in MODES:
            ap = gate(host, m, policy=policy and pol)
            for r in rules: ap.grant(*r)
            with redirect_stderr(StringIO()):
                for _ in range(before): ap.request(*call, force=force, timeout=0)
                got.append(sign(ap.decide(*call, force=force)))
        assert [STRICT[g] for g in got]==sorted(STRICT[g] for g in got), dict(zip(MODES, got))
        assert not force or got[0]=='r' or call[0] not in {*GATED,'mcp__x__write'}
        if '+' in got[2:5]: assert ap.kind(*call) in ('free','edit','look') or any(v=='allow' for *_,v in rules) or policy=='allow'
        if ap.credential(*call): assert '+' not in got
        if policy in ('deny',): assert set(got)=={'r'}
        if policy in ('ask','junk',KeyError): assert '+' not in got
    check()

@few_or_many(150, 1500)
def test_force_means_treat_as_gated_and_nothing_more(host, n):
    @examples(n)
    @given(call=calls, mode=st.sampled_from(MODES))
    def check(call, mode):
        ap = gate(host, mode)
        plain,forced = sign(ap.decide(*call)),sign(ap.decide(*call, force=True))
        if ap.kind(*call) in ('edit','act'): assert plain==forced
        else: assert STRICT[forced]<=STRICT[plain]
        ap.grants.append(_granted(*call))
        if mode!='off' and not ap.credential(*call): assert sign(ap.decide(*call, force=True))=='+'
    check()

C172 = ['git status && touch P','git status; touch P','git status | tee P','git status\ntouch P','git status & touch P',
    'git status > P','git status || touch P','(git status; touch P)','git statusx','git status #\rtouch P']
C173 = ['git status $(touch P)','git status `touch P`','git status <(touch P)','X=`touch${IFS}P` npm --version',
    'PATH=/tmp/evil:$PATH npm --version','git status "$(touch P)"','git status ${x:-$(touch P)}',
    "git -c core.fsmonitor='touch P' status","GIT_PAGER='touch P' git status"]
MORE = ['git status\\\n;touch P','git status --output=P x','git diff --output P','git diff --outpu=P','git log --output=P',
    'git branch P','git branch -D x','git --git-dir=x status','git -C / status','find . -exec touch P +','find . -fprint P',
    'find . -delete',
    "'git status'",'"git" status "','ls {a,b}','ls ~','ls ~root','cat $HOME','ls !x','ls a\\ b','time ls','! ls','ls\xa0x',
    'ls\u3000x','ls\x0bx','ls\x85x','ls\u2028touch P','if ls','{ ls','rg --pre=sh x','rg -z x','rg --hidden x','grep -r x .',
    'tail -f x','sort -o P x','date -s x','env','=ls','./ls','/bin/ls','tail --pid=1 a','sed -n 1p a','awk 1 a','xargs ls',
    'diff --to-file=x y','cat < a','cat <<E','ls ;','ls &','&& ls','echo a>b','echo "a$b"','echo "`x`"','git branch -- P',
    'find -- . -delete','rg -g .env x','rg --glob=.env x','grep --include=x y','grep -d recurse x .','git',
    'git remote add a b','git remote show x','git ls-files -x P --ignored','coproc ls','\u00a0ls','ls \x00']

@pytest.mark.parametrize('c', C172+C173+MORE)
def test_C172_C173_what_is_not_recognised_asks(host, c):
    ap = gate(host, 'work')
    for g in ('git status','npm --version'): ap.grant('run_shell', g)
    assert ap.decide('run_shell', dict(command=c)) is None
    assert not read_only(c)

def test_C172_the_granted_command_itself_runs(host):
    ap = gate(host, 'ask')
    ap.grant('run_shell', 'git status')
    assert ap.decide('run_shell', dict(command='git status')) and ap.decide('run_shell', dict(command=' git  "status" '))
    assert ap.decide('run_shell', dict(command='git status', cwd='/')) is None

def test_simple_words_are_the_words_the_shell_sees(tmp_path):
    rnd,cs = random.Random(7),['ls HEAD~1 a~', "ls '' x=1 \"*\" '$x' 'a\tb'"]
    cs += [''.join(rnd.choices("ab -'\""*9+"=$`\\;&|<>(){}*?[]~#!\n\t\r/.,%:@+^", k=rnd.randint(1, 12))) for _ in range(60_000)]
    cs = [c for c in cs if simple(c)]
    assert len(cs)>3000
    for sh in ('bash','sh'):
        script = 'f() { printf "%s\\0" "$#" "$@"; }\n'+'\n'.join('f '+c for c in cs)
        r = subprocess.run([sh], input=script, cwd=tmp_path, capture_output=True, text=True)
        assert r.stderr=='' and r.stdout.split('\0')[:-1]==[w for c in cs for ws in [simple(c)] for w in [str(len(ws)), *ws]]
    assert not list(tmp_path.iterdir())

# Asking

SOON = 20 # seconds: what waits for a person or a listener here would wait for longer

def wait_for(f):
    end = time.monotonic()+SOON
    while not f():
        assert time.monotonic()<end, 'nothing happened'
        time.sleep(.001)

def asking(ap, *call, **kw):
    "A request on a thread of its own: `(thread, results)`"
    res = []
    n = len(ap.waiting)
    t = threading.Thread(target=lambda: res.append(ap.request(*call, **kw)), daemon=True)
    t.start()
    wait_for(lambda: res or len(ap.waiting)>n)
    return t,res

make,edit = ('run_shell',dict(command='make')),('edit_file',dict(path='a', old='1', new='2'))
def ear(ask): pass

def test_R76_allow_once_asks_again():
    ap = Approvals(on_ask=lambda a: ap.answer(a.id, True))
    assert ap.request(*edit) and ap.mode=='ask' and ap.decide(*edit) is None and not ap.grants

def test_R77_R78_R79_allow_always_opens_edits_only():
    ap = Approvals(on_ask=lambda a: ap.answer(a.id, True, session=True, scope='edits'))
    assert ap.request(*edit) and ap.mode=='edits'
    assert ap.decide(*edit) and ap.decide('run_shell', dict(command='ls')) is None and ap.decide('add_root', dict(path='/tmp')) is None
    assert ap.decide('create_file', dict(path='../x', text='')) is None

def test_a_remembered_yes_to_a_command_is_for_that_command_only():
    ap = Approvals(on_ask=lambda a: ap.answer(a.id, True, session=True, scope='edits'))
    assert ap.request(*make) and ap.mode=='ask'
    assert ap.decide(*make) and ap.decide('run_shell', dict(command='make', timeout=5))
    assert ap.decide('run_shell', dict(command='make x')) is None and ap.decide('run_shell', dict(command='make',
        cwd='sub')) is None and ap.decide(*edit) is None
    ap.set_mode('ask')
    assert ap.decide(*make) is None, 'choosing a mode ends the grants of cards'

def test_a_remembered_no_is_for_that_call_only():
    ap = Approvals(on_ask=lambda a: ap.answer(a.id, False, session=True, scope='auto'))
    assert not ap.request(*make) and ap.mode=='ask'
    assert ap.decide(*make).how=='withheld' and ap.decide(*edit) is None

def test_a_remembered_yes_never_makes_the_gate_stricter():
    ap = Approvals(mode='auto', policy=lambda n,a: 'ask', on_ask=lambda a: ap.answer(a.id, True, session=True))
    assert ap.request(*edit) and ap.mode=='auto'

@pytest.mark.parametrize('ok', ['yes', 1, 'allow_once', None, object()])
def test_only_true_is_a_yes(ok):
    ap = Approvals(on_ask=lambda a: ap.answer(a.id, ok, session=True, scope='auto'))
    r = ap.request(*edit)
    assert not r and r.answer is False and ap.mode=='ask'

def test_C074_two_questions_are_answered_each_by_its_own_id():
    ap = Approvals(on_ask=ear)
    (ta,ra),(tb,rb) = asking(ap, 'create_file', dict(path='a', text='A'), call='a'),asking(ap, 'create_file', dict(path='b',
        text='B'), call='b')
    a,b = sorted(ap.waiting, key=lambda o: o.call)
    assert ap.answer(b.id, False) is b and ap.answer(a.id, True) is a
    ta.join(SOON); tb.join(SOON)
    assert ra[0] is a and a and rb[0] is b and not b

def test_a_second_answer_returns_none():
    ap = Approvals(on_ask=ear)
    t,r = asking(ap, *make)
    a = ap.waiting[0]
    assert ap.answer(a.id, False, 'no') is a and ap.answer(a.id, True) is None and ap.answer('00000000', True) is None
    t.join(SOON)
    assert r[0].how=='refused' and 'no' in r[0].reply() and not ap.waiting

def test_R83_silence_is_a_no():
    ap = Approvals(on_ask=ear, timeout=.05)
    assert ap.request(*make).how=='timed out' and not ap.waiting
    assert ap.answer(ap.request(*make).id, True) is None, 'too late'

def test_on_timeout_allow_never_holds_for_what_was_forced():
    kw = dict(on_ask=ear, timeout=.02, on_timeout='allow')
    assert Approvals(**kw).request(*make)
    assert not Approvals(**kw).request(*make, force=True)
    assert not Approvals(policy=lambda n,a: 'ask', **kw).request(*make)

def test_R85_with_nobody_listening_a_gated_call_is_refused():
    r = Approvals().request(*make)
    assert not r and r.how=='withheld'
    assert Approvals().request('view_file', dict(path='a'))

def test_no_listener_wait_waits_for_one():
    ap = Approvals(no_listener='wait')
    t,r = asking(ap, *make)
    ap.listen(lambda a: ap.answer(a.id, True))
    t.join(SOON)
    assert r[0]

@pytest.mark.parametrize('err', [RuntimeError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_listener_that_fails_is_a_no(err, capsys):
    def fail(ask): raise err('x')
    r = Approvals(on_ask=fail).request(*make)
    assert not r and r.how=='interrupted'

def test_one_listener_of_two_is_enough(capsys):
    def fail(ask): raise RuntimeError
    ap = Approvals(on_ask=fail)
    ap.listen(lambda a: (time.sleep(.05), ap.answer(a.id, True)))
    assert ap.request(*make)

def test_a_listener_that_blocks_holds_nobody():
    tok,gone = Token(),threading.Event()
    ap = Approvals(on_ask=lambda a: gone.wait(600))
    t,r = asking(ap, *make, tok=tok)
    tok.cancel(); t.join(SOON)
    assert r[0].how=='cancelled'
    assert Approvals(on_ask=lambda a: gone.wait(600), timeout=.05).request(*make).how=='timed out'
    gone.set()

def test_a_cancelled_token_lets_nothing_through():
    tok,told = Token(),[]
    tok.cancel()
    ap = Approvals(mode='auto', on_ask=told.append)
    assert ap.request(*make, tok=tok).how=='cancelled'
    assert Approvals(on_ask=told.append).request(*make, tok=tok).how=='cancelled' and told==[]

def test_R84_after_close_nothing_waits_and_nothing_runs():
    ap = Approvals(on_ask=ear, mode='ask')
    t,r = asking(ap, *make)
    ap.close(); t.join(SOON)
    assert r[0].how=='interrupted' and not ap.waiting
    ap.set_mode('auto')
    assert not ap.request(*make) and ap.request('view_file', {})

def test_R86_unhook_unregisters_and_interrupts_what_waits():
    ap = Approvals()
    off = ap.listen(ear)
    t,r = asking(ap, *make)
    off(); t.join(SOON)
    assert r[0].how=='interrupted' and ap.request(*make).how=='withheld'

def test_a_new_listener_gets_what_waits_once():
    ap,got = Approvals(on_ask=ear),[]
    t,r = asking(ap, *make)
    ap.listen(got.append); wait_for(lambda: got)
    t2,r2 = asking(ap, *edit); wait_for(lambda: len(got)==2)
    time.sleep(.02)
    assert got==ap.waiting
    ap.cancel_all(); t.join(SOON); t2.join(SOON)
    assert [x[0].how for x in (r,r2)]==['cancelled']*2

def test_listeners_hear_how_it_ended_before_the_call_returns():
    ends = []
    ap = Approvals(on_ask=lambda a: ap.answer(a.id, True), on_answer=lambda a: ends.append((a.id, a.how)))
    r = ap.request(*make)
    assert ends==[(r.id, 'allowed')]

def test_four_ways_of_no_are_four_texts():
    tok = Token()
    rs = [Approvals(on_ask=ear, timeout=.01).request(*make), Approvals(on_ask=lambda a: tok.cancel()).request(*make, tok=tok)]
    no = Approvals(on_ask=lambda a: no.answer(a.id, False))
    end = Approvals(on_ask=lambda a: end.close())
    rs += [no.request(*make), end.request(*make), Approvals().request(*make)]
    assert [r.how for r in rs]==['timed out','cancelled','refused','interrupted','withheld']
    assert len({r.reply().split('(')[0] for r in rs})==5 and not any(rs)

@pytest.mark.parametrize('mode,hows', [('off',['withheld']*2), ('rules',['withheld']*2), ('edits',['allowed',None]), ('work',
    ['allowed',None]), ('auto',['allowed']*2)])
def test_a_mode_settles_the_questions_it_decides(mode, hows):
    ap = Approvals(on_ask=ear)
    (te,re_),(tm,rm) = asking(ap, *edit),asking(ap, *make)
    ap.set_mode(mode)
    for t,r,h in ((te,re_,hows[0]),(tm,rm,hows[1])):
        if h: t.join(SOON); assert r[0].how==h
        else: assert not r
    ap.close()

def test_a_mode_does_not_settle_a_question_of_the_loop_guard():
    ap = Approvals(mode='auto', on_ask=ear)
    assert ap.request(*make) and ap.request(*make)
    t,r = asking(ap, *make)
    assert ap.waiting[0].forced=='loop'
    ap.set_mode('auto')
    assert ap.waiting and not r
    ap.set_mode('off'); t.join(SOON)
    assert r[0].how=='withheld'

def test_the_loop_guard_counts_identical_gated_calls_in_a_row():
    ap = Approvals(mode='auto')
    for _ in range(3): assert ap.request(*make) and ap.request(*edit)
    assert ap.request(*make) and ap.request('view_file', {}) and ap.request(*make) and ap.decide(*make) is None

@pytest.mark.parametrize('mode', MODES)
def test_C178_credentials_always_need_a_person(host, mode):
    ap = gate(host, mode)
    ap.grant('*')
    for c in [('view_file',dict(path='.env')), ('view_file',dict(path='link')), ('edit_file',dict(path='src/../.env', old='',
        new='')), ('run_shell',dict(command='cat .env')),
              ('run_shell',dict(command='x < link|y')), ('run_shell',dict(command='cat ".env"', cwd='src/..')), ('run_shell',
              dict(command='cat ~/.ssh/id_rsa')), ('mcp__x__read',dict(where='.env'))]:
        assert ap.gated(*c) and sign(ap.decide(*c))==('r' if mode in ('off','rules') else '?'), c
    assert ap.decide('view_file', dict(path='a.py')) and not ap.gated('grep', dict(pattern='.env', path='src'))

def test_a_denial_wins_over_every_grant(host):
    ap = gate(host, 'auto', policy=lambda n,a: 'allow')
    ap.grant('run_shell', '*'); ap.grant('run_shell', 'git push *', 'deny'); ap.grant('*', 'src/*', 'deny')
    for c in ('git push', 'git push -f', 'x && git  push', 'g"i"t push', "sh -c 'git push'"): assert ap.decide('run_shell',
        dict(command=c)).answer is False, c
    assert ap.decide('view_file', dict(path='leads/../src/a')).answer is False
    assert ap.decide('run_shell', dict(command='git pull'))

def test_wrong_names_are_told():
    for f in (lambda: Approvals(mode='yolo'), lambda: Approvals().set_mode('x'), lambda: Approvals().grant('a', 'b', 'maybe')):
        with pytest.raises(InvalidParams): f()

def test_many_threads_ask_and_are_answered_while_the_mode_changes():
    ap,res,n = Approvals(timeout=60),[],60
    ap.listen(lambda a: ap.answer(a.id, a.args['command'].endswith('0')))
    ts = [threading.Thread(target=lambda i=i: res.append((i, ap.request('run_shell', dict(command=f'make {i} {i%2}'),
        call=str(i))))) for i in range(n)]
    for t in ts: t.start()
    for m in ['ask','edits','ask','work']*5: ap.set_mode(m)
    for t in ts: t.join(60)
    assert len(res)==n and all(r.call==str(i) and bool(r)==(i%2==0) for i,r in res) and not ap.waiting
