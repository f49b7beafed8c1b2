"Whatever comes down the pipe: each request is answered once, nothing but protocol comes out, and the process neither grows nor falls"
from collections import Counter
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from ramabana_acp.core import daemon, utf8
from wire import *

def profile(n): return settings(max_examples=n, phases=[Phase.generate], suppress_health_check=list(HealthCheck))

# ---- what is sent

TEXT = st.text(st.characters(exclude_categories=()), max_size=20) # half surrogate pairs too
JSON = st.recursive(st.none()|st.booleans()|st.integers()|st.floats()|TEXT, lambda c: st.lists(c, max_size=3)|st.dictionaries(TEXT, c, max_size=3), max_leaves=6)
IDS = st.integers(-3, 12)|st.sampled_from(['a','b','1','','\ud800',' ','é'*30])|st.sampled_from([2**70,-2**63,0,1.5,1e999,True,None,[],{},[1]])
ODD = st.sampled_from(['','x','\0','\ud800x','../..','/etc/passwd','~',' ','$LONG','\x1b[2J','é','🎉','\u202e'])
SIDS = st.sampled_from(['$S0','$S0','$S1','$OLD','ghost','','\ud800','../x'])
BLOCKS = st.one_of(TEXT.map(lambda s: dict(type='text', text=s)), st.sampled_from(['/help','/nope','/',' /help','go on']).map(lambda s: dict(type='text', text=s)),
    ODD.map(lambda s: dict(type='resource_link', name=s, uri=s)), ODD.map(lambda s: dict(type='resource_link', name='n', uri=f'file:///{s}')),
    ODD.map(lambda s: dict(type='resource', resource=dict(uri=f'file:///{s}', text=s))), ODD.map(lambda s: dict(type='resource', resource=dict(uri=s, blob=s))),
    st.sampled_from(['','iVBORw0KGgo=','@@','/9j/']).map(lambda s: dict(type='image', mimeType='image/png', data=s)), ODD.map(lambda s: dict(type='audio', mimeType=s, data=s)),
    st.dictionaries(st.sampled_from(['type','text','uri','data','resource','name']), JSON|ODD, max_size=4))
def params(**kw): return st.fixed_dictionaries(kw)
SOUND = st.one_of(
    params(method=st.just('session/prompt'), params=params(sessionId=SIDS, prompt=st.lists(BLOCKS, max_size=3))),
    params(method=st.just('session/prompt'), params=params(sessionId=st.just('$S0'), prompt=st.just([dict(type='text', text='go')]))),
    params(method=st.just('session/new'), params=params(cwd=st.sampled_from(['$ROOT','$ROOT','/nonexistent','relative','','/etc/passwd','\0']), mcpServers=st.just([])|st.lists(JSON, max_size=2))),
    params(method=st.just('session/close'), params=params(sessionId=SIDS)),
    params(method=st.just('initialize'), params=params(protocolVersion=st.sampled_from([0,1,2,65535,65536,-1]), clientCapabilities=st.just(dict(fs=dict(readTextFile=True, writeTextFile=True), terminal=True)))),
    params(method=st.just('authenticate'), params=params(methodId=ODD)),
    params(method=st.sampled_from(['session/load','session/resume','session/fork']), params=params(sessionId=SIDS, cwd=st.sampled_from(['$ROOT','$ROOT','/tmp','relative']), mcpServers=st.just([]))),
    params(method=st.just('session/list'), params=st.fixed_dictionaries({}, optional=dict(cwd=st.just('$ROOT')|ODD, cursor=TEXT|ODD))),
    params(method=st.sampled_from(['session/delete','session/fork','session/set_mode','session/set_config_option','session/set_model','logout','_session/steering','_ramabana/x','_x','','foo','session/update',
        'fs/read_text_file']), params=st.fixed_dictionaries(dict(sessionId=SIDS), optional=dict(modeId=ODD, configId=ODD, value=JSON, messageId=ODD))))
NOTES = st.one_of(params(method=st.just('session/cancel'), params=params(sessionId=SIDS)), params(method=st.just('$/cancel_request'), params=params(requestId=IDS)), params(method=TEXT, params=JSON))
ANSWERS = params(id=st.integers(1, 400).flatmap(lambda n: st.sampled_from([999_999+n, str(999_999+n)]))|IDS, result=JSON)|params(id=IDS, error=JSON)
MESSAGES = st.one_of(st.tuples(SOUND, IDS).map(lambda t: dict(jsonrpc='2.0', id=t[1], **t[0])), st.tuples(SOUND, IDS).map(lambda t: dict(jsonrpc='2.0', id=t[1], **t[0])),
    NOTES.map(lambda m: dict(jsonrpc='2.0', **m)), ANSWERS.map(lambda m: dict(jsonrpc='2.0', **m)))

@st.composite
def mutated(draw, msg=MESSAGES):
    "A message with one thing about it wrong"
    m = draw(msg)
    at,how = m,draw(st.sampled_from(['drop','swap','add','case','twin']))
    while isinstance(at.get('params'), dict) and draw(st.booleans()): at = at['params']
    k = draw(st.sampled_from(sorted(at) or ['x']))
    if how=='drop': at.pop(k, None)
    elif how=='swap': at[k] = draw(JSON)
    elif how=='add': at[draw(st.sampled_from(['_meta','method','result','error','id','params','x']))] = draw(JSON)
    elif how=='case': at[k.upper()] = at.pop(k, None)
    elif how=='twin': return json.dumps(m).encode()[:-1]+b','+json.dumps({k:draw(JSON)}).encode()[1:]
    return json.dumps(m).encode()

@st.composite
def broken(draw):
    "The bytes of a message that something happened to"
    b = json.dumps(draw(MESSAGES)).encode()
    i,n = draw(st.integers(0, len(b)-1)),draw(st.integers(1, 9))
    how = draw(st.sampled_from(['cut','flip','insert','split','cr','bom','batch','glue','indent','pad']))
    if how=='cut': return b[:i]
    if how=='flip': return b[:i]+bytes([b[i]^1<<draw(st.integers(0, 7))])+b[i+1:]
    if how=='insert': return b[:i]+draw(st.binary(min_size=n, max_size=n))+b[i:]
    if how=='indent': return json.dumps(json.loads(b), indent=1).encode()
    return dict(split=b[:i]+b'\n'+b[i:], cr=b+b'\r', bom=b'\xef\xbb\xbf'+b, batch=b'['+b+b','+b+b']', glue=b+b, pad=b' '*n+b+b'\t'*n)[how]

HUGE = [b'['*100_000, b'{"a":'*100_000, b'['*200+b']'*200, b'9'*5000, b'1e999', b'"'+b'x'*1_000_000+b'"', b'\x00'*1000, b' '*10_000, b'{'*3, b'nul', b'"\\ud800"', b'\xff\xfe{\x00}\x00',
    json.dumps(dict(jsonrpc='2.0', id=7, method='session/prompt', params=dict(sessionId='$S0', prompt=[dict(type='text', text='x'*1_000_000)]))).encode(),
    json.dumps(dict(jsonrpc='2.0', id=8, method='y'*1_000_000)).encode(), json.dumps(dict(jsonrpc='2.0', id='i'*100_000, method='z')).encode(),
    b'{"jsonrpc":"2.0","id":9,"method":"session/new","params":{"cwd":"$ROOT","mcpServers":[],"deep":'+b'['*200+b']'*200+b'}}',
    b'{"jsonrpc":"2.0","id":'+b'9'*4000+b',"method":"x"}', b'{"jsonrpc":"2.0","id":1e2,"method":"x"}', b'{"jsonrpc":"2.0","id":-0,"method":"x"}']
LINE = st.one_of(MESSAGES.map(lambda m: json.dumps(m).encode()), MESSAGES.map(lambda m: json.dumps(m).encode()), mutated(), mutated(), broken(), st.sampled_from(range(len(HUGE))).map(lambda i: HUGE[i]), st.binary(max_size=60))
LINES = st.lists(LINE, min_size=1, max_size=14)

# ---- what should come back, worked out apart from the agent

def _no(s): raise ValueError(s)
def owed(line):
    "The answer that `line` has a right to: `None`, or the message as far as an answer can name it; its id is None when it has none to name"
    if not line.strip(): return None
    try: m = json.loads(line.decode('utf-8-sig'), parse_constant=_no)
    except (ValueError, RecursionError): return dict(id=None)
    if not isinstance(m, dict): return dict(id=None)
    id = m.get('id')
    if not isinstance(id, (str,int,type(None))) or isinstance(id, bool): return dict(id=None)
    if 'method' not in m: return None if 'id' in m and ('result' in m or 'error' in m) else dict(id=None)
    if not isinstance(m['method'], str): return dict(id=None)
    if 'id' not in m: return None
    sid = m['params'].get('sessionId') if isinstance(m.get('params'), dict) else None
    return dict(id=utf8(id) if isinstance(id, str) else id, method=utf8(m['method']), params=dict(sessionId=utf8(sid) if isinstance(sid, str) else None))

def name(id): return json.dumps(id)
def settle(want, got):
    "Raise when the answers `got` are not one for each of `want`"
    asked,said = Counter(name(m['id']) for m in want),Counter(name(m['id']) for m in got)
    assert not said-asked-Counter(null=len(want)), f'answers to nobody or twice: {said-asked}'
    assert len(got)==len(want), f'{len(got)} answers to {len(want)} requests'
    assert not set(asked)-set(said)-{'null'}, f'never answered: {set(asked)-set(said)}'
    for m in got:
        if (e := m.get('error')) and e['code']==-32603: assert e.get('data', {}).get('code'), f'a handler fell over what came in: {m}'

def fill_in(b, root, sids):
    for k,v in {b'$ROOT':str(root), b'$LONG':'x'*70_000, **dict(zip((b'$S0',b'$S1',b'$OLD'), sids))}.items(): b = b.replace(k, v.encode())
    return b

class Fuzzed:
    "One process for many examples"
    def __init__(self, a):
        self.a,self.root,self.n,self.sids,self.base = a,a.home/'ws',0,[],None
        self.root.mkdir(exist_ok=True)
        a._n = 1_000_000 # ids of our own, apart from those of the examples
    def since(self, at): return [m for _,l in self.a.lines[at:] if 'method' not in (m := strict(l)) and m['id']!=self.sync]
    def ask(self, method, **params):
        "The result, or the code of the error"
        try: return self.a.request(method, params, 20)
        except Remote as e: return e.code
    def sessions(self):
        "Two sessions that are open, and one that was closed and is stored"
        *live,old = self.sids or [None]*3
        live = [s if s and self.ask('session/prompt', sessionId=s, prompt=[])!=-32002 else self.a.new(self.root) for s in live]
        if not old or self.ask('session/resume', sessionId=old, cwd=str(self.root), mcpServers=[])==-32002:
            old = self.a.new(self.root)
            self.a.prompt(old, 'hello', 20)
        self.ask('session/close', sessionId=old)
        self.sids = [*live, old]
    def run(self, lines):
        a = self.a
        self.sessions()
        data = b''.join(fill_in(l, self.root, self.sids)+b'\n' for l in lines)
        want = [o for l in data.split(b'\n') if (o := owed(l))]
        assert not a.problems() and not a.faults
        at,log,self.sync = len(a.lines),len(a.stderr),f'sync-{self.n}'
        self.n += 1
        a.trace += [('>', m) for m in want if 'method' in m]+[('>', dict(id=self.sync, method='_sync'))]
        super(Agent, a).raw(data+json.dumps(dict(jsonrpc='2.0', id=self.sync, method='_sync')).encode()+b'\n')
        try: poll(lambda: self.sync in a.replies and len(self.since(at))>=len(want), 20)
        except TimeoutError: assert a.proc.poll() is None, f'it left with {a.proc.poll()}: {a.stderr[log:][-2000:]}'
        got = self.since(at)
        settle(want, got)
        new = {m['result']['sessionId'] for m in got if isinstance(m.get('result'), dict) and 'sessionId' in m['result']}
        a.check.known |= new # also those whose request had the id null
        for s in new: self.ask('session/delete', sessionId=s)
        bad = [(k, m) for k,m in a.problems() if m!='a result for nobody']+a.faults # to the id null
        for o in (a.check.sent, a.check.turns, a.check.shared, a.replies, a.trace, a.lines, a.updates): o.clear()
        a.at = 0
        told = a.stderr[log:]
        assert not bad and 'Traceback' not in told and len(told)<3000+600*len(lines), (bad, told[-3000:])
        if self.n==60: poll(lambda: loaded(a.proc.pid), 30) # what comes before is answered without the ACP library, the rest with it
        if self.n==80: self.base = rss(a.proc.pid)
    def done(self, record_property):
        grown = (rss(self.a.proc.pid)-self.base)>>20
        record_property('MiB grown', grown); record_property('examples', self.n)
        print(f'{self.n} examples: {grown} MiB more')
        assert grown<100 and self.a.proc.poll() is None

def loaded(pid):
    "Has process `pid` loaded the ACP library?"
    f = Path(f'/proc/{pid}/maps')
    if not f.exists() or '_pydantic_core' not in f.read_text(): return not f.exists()
    was = rss(pid)
    time.sleep(.5)
    return rss(pid)-was<1<<20

def rss(pid):
    "Bytes of memory that process `pid` has now"
    st = Path(f'/proc/{pid}/statm')
    if st.exists(): return int(st.read_text().split()[1])*os.sysconf('SC_PAGE_SIZE')
    return int(subprocess.run(['ps','-o','rss=','-p',str(pid)], capture_output=True, text=True).stdout)<<10

SCRIPT = [[dict(text='Hello.')], [tool('view_file', path='a.txt'), tool('create_file', 't2', path='b/c.txt', text='x')], [dict(text='Done.')]]*400
def fuzz(n, record_property):
    with agent(script=SCRIPT, permit=['allow_once','reject_once','cancelled'], rc=0, **FULL) as a:
        f = Fuzzed(a)
        @profile(n)
        @given(LINES)
        def examples(lines):
            try: f.run(lines)
            except BaseException: print(f'--- example {f.n}', *(l[:500] for l in lines), sep='\n'); raise
        examples()
        f.done(record_property)

def test_any_lines_at_all_are_answered_once_each(record_property): fuzz(80, record_property)

@pytest.mark.slow
def test_very_many_lines_are_answered_once_each(record_property): fuzz(2000, record_property)

# ---- a process of its own for each example, which may not even be greeted

HELLO = json.dumps(dict(jsonrpc='2.0', id='hello', method='initialize', params=dict(protocolVersion=1))).encode()

def fresh(n, home):
    (home/'ws').mkdir(); (home/'script.json').write_text(json.dumps(SCRIPT))
    @profile(n)
    @given(LINES, st.integers(0, 15))
    def examples(lines, at):
        lines = [fill_in(l, home/'ws', ['ghost']*3) for l in [*lines[:at], HELLO, *lines[at:]]]
        data = b'\n'.join(lines)
        p = subprocess.Popen([*PYTHON, '--model', f'scripted/{home}/script.json'], stdin=-1, stdout=-1, stderr=-1, env=clean_env(home))
        try: out,err = p.communicate(data, timeout=20)
        finally: p.kill(); p.wait()
        try:
            assert p.returncode==0 and b'Traceback' not in err and len(err)<3000+600*len(lines), (p.returncode, err[-2000:])
            settle([o for l in data.split(b'\n') if (o := owed(l))], [m for l in out.splitlines(True) if 'method' not in (m := strict(l))])
        except BaseException: print('--- sent', *(l[:500] for l in lines), sep='\n'); raise
    examples()

def test_the_first_lines_of_a_process_may_be_any_and_each_is_answered_before_it_leaves(tmp_path): fresh(8, tmp_path)

@pytest.mark.slow
def test_the_first_lines_of_very_many_processes_may_be_any(tmp_path): fresh(80, tmp_path)

# ---- what the editor answers

YES = dict(outcome=dict(outcome='selected', optionId='allow_once'))
CALL = dict(outcome=dict(outcome='selected', optionId='allow_call'))
OUTCOMES = st.one_of(JSON, params(outcome=JSON), params(outcome=params(outcome=st.sampled_from(['selected','cancelled','allowed','Selected','']), optionId=JSON|st.sampled_from(['allow','Allow','allow_once','allow_call','reject_once','']))),
    st.just(YES), st.just(YES))
CONTENTS = JSON|params(content=JSON|TEXT)
ENDS = JSON|params(exitCode=JSON, signal=JSON)|params(exitCode=st.just(0))
GIVEN = {'session/request_permission':OUTCOMES, 'fs/read_text_file':CONTENTS, 'terminal/create':JSON|params(terminalId=JSON|TEXT)|params(terminalId=st.just('t1')), 'terminal/wait_for_exit':ENDS,
    'terminal/output':JSON|params(output=JSON|TEXT, truncated=JSON), 'terminal/kill':JSON, 'terminal/release':JSON}
FAILS = st.tuples(st.integers(-40_000, 40_000), TEXT, JSON)

def strange(n, models, record_property):
    "Answer all that the agent asks with whatever there is; only a yes is a yes"
    def turn(i): return [[tool('view_file', f'v{i}', path='a.txt'), tool('create_file', f'c{i}', path=f'f{i}', text='x'), tool('run_shell', f'r{i}', command=f'touch g{i}')], [dict(text=f'done {i}')]]
    with agent(models=models, fs='read', terminal=True, strict=False) as a:
        s = a.session([e for i in range(n) for e in turn(i)], {'a.txt':'1\n'})
        yes,count = Counter(),iter(range(n))
        @profile(n)
        @given(st.data())
        def examples(data):
            given_ = {m:data.draw(st.lists(st.tuples(st.just(True), v)|st.tuples(st.just(True), v)|st.tuples(st.just(False), FAILS), min_size=2, max_size=2)) for m,v in GIVEN.items()}
            i,lock,allowed,told = next(count),threading.Lock(),set(),[]
            def answer(meth, p):
                with lock: ok,v = given_[meth].pop() if given_[meth] else (True, {})
                told.append((meth, ok, v))
                if not ok: raise Remote(*v)
                if v==YES or v==CALL and any(o['optionId']=='allow_call' for o in p.get('options', ())): allowed.add(p['toolCall']['toolCallId'])
                return v
            a.on_request = answer
            s.ed.updates.clear(); a.updates.clear()
            try:
                assert s.stop(f'turn {i}')=='end_turn' and s.said().endswith(f'done {i}')
                for k,f in (('c','f'), ('r','g')):
                    assert not s.path(f'{f}{i}').exists() or f'{k}{i}' in allowed, f'{f}{i} without a yes'
                    yes[k] += f'{k}{i}' in allowed
                opened = any(ok for m,ok,_ in told if m=='terminal/create')
                assert not opened or not s.path(f'g{i}').exists(), 'a command that ran in the editor ran here as well'
                assert not a.faults and 'Traceback' not in a.stderr and not a.problems()
            except BaseException: print('--- told', *told, sep='\n'); raise
        examples()
        record_property('allowed', dict(yes))
        assert yes['c'] and yes['r']

def test_whatever_the_editor_answers_only_a_yes_is_a_yes(models, record_property): strange(30, models, record_property)

@pytest.mark.slow
def test_law_5_whatever_the_editor_answers_250_times(models, record_property): strange(250, models, record_property)

@pytest.mark.slow
def test_an_editor_that_asks_and_never_reads_does_not_eat_the_memory(tmp_path):
    n = 200_000
    with agent('--model', 'demo', rc=None) as a:
        hears,base = threading.Event(),rss(a.proc.pid)
        got = []
        a.got = lambda line: (hears.wait(), got.append(line))
        def write():
            for i in range(0, n, 1000): super(Agent, a).raw(b''.join(b'{"jsonrpc":"2.0","id":"%d%s","method":"%s"}\n'%(k, b'i'*200, b'm'*200) for k in range(i, i+1000)))
        w = daemon(write, name='writer')
        def still():
            was = rss(a.proc.pid)
            time.sleep(1)
            return abs(rss(a.proc.pid)-was)<1<<20
        poll(lambda: not w.is_alive() or still(), 120)
        assert rss(a.proc.pid)-base<100<<20
        hears.set()
        poll(lambda: len(got)==n, 120)
        assert len({json.loads(l)['id'] for l in got})==n
        a.got = lambda line: None
