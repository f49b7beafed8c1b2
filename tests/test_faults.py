"The editor, the machine, the model server and our own code fail at the worst moment: what is left behind, and how soon"
import fcntl, struct, termios
from concurrent.futures import ThreadPoolExecutor
from wire import *
from ramabana_acp.core import daemon
from ramabana_acp.testing.models import Chat, Messages

# ---- the steps of a turn at which it can be stuck

TREE = "(sleep 40; touch late) & (trap '' TERM; sleep 40; touch late2) & (setsid sleep 40; touch late3) & touch up; wait"
LONG = [dict(text='a'), dict(sleep=60), dict(text='b')]

def silent(name):
    "Answers of an editor that never says what is in file `name`"
    return {'fs/read_text_file':lambda p: NoAnswer if p['path'].endswith(name) else ...}
def asked(method, name=''): return lambda s: any(p.get('path', '').endswith(name) for p in s.ed.calls(method))

class Step:
    "A script and an editor that bring a turn to a place where it stays, and how to see that it is there"
    def __init__(self, script, at, **kw): self.script,self.at,self.kw = script,at,kw
    def open(self, a): return a.session(self.script, **{**self.kw, 'answers':dict(self.kw.get('answers', {}))})

def reach(a, names):
    "Sessions of `a`, each with its turn at one of the steps, as name → (session, id of its prompt)"
    ss = {n:STEPS[n].open(a) for n in names}
    got = {n:(s, s.start()) for n,s in ss.items()}
    for n,(s,id) in got.items():
        try: poll(lambda: STEPS[n].at(s), 30)
        except TimeoutError: raise AssertionError(f'{n}: not there; its answer: {a.replies.get(id)}') from None
    return got

EDIT = dict(files={'a.txt':'old\n'}, script=one('edit_file', path='a.txt', old='old', new='new'))
STEPS = dict(
    briefing = Step([OK], asked('fs/read_text_file', 'AGENTS.md'), files={'AGENTS.md':'Be kind.\n'}, answers=silent('AGENTS.md')),
    unanswered = Step([[dict(silence=60)], OK], lambda s: s.requests),
    streaming = Step([LONG, OK], lambda s: s.said()=='a'),
    thinking = Step([[dict(think='hm'), dict(sleep=60)], OK], lambda s: s.said('agent_thought_chunk')=='hm'),
    reading = Step([[tool('view_file', path='a.txt')], OK], asked('fs/read_text_file', 'a.txt'), files={'a.txt':'1\n'}, answers=silent('a.txt')),
    permission = Step([*one('create_file', path='x.txt', text='hi'), OK], lambda s: s.asks, permit=None),
    writing = Step(at=asked('fs/write_text_file', 'a.txt'), answers={'fs/write_text_file':NoAnswer}, **EDIT),
    command = Step([*one('run_shell', command=TREE), OK], lambda s: s.path('up').exists()),
    retry = Step([[dict(http=503, headers={'retry-after':'20'})], OK], lambda s: 'Asking again in 2' in s.said('agent_thought_chunk')))

LATE = ('late','late2','late3')
def untouched(got):
    "Nothing that a turn was about to do was done, and nothing is done later"
    for name,(s,_) in got.items():
        assert s.read('x.txt') is None and s.read('a.txt') in (None,'old\n','1\n') and not any(s.path(f).exists() for f in LATE), name

# ---- the editor dies

def deaf(a):
    "From now on nobody reads what `a` writes; returns a function that reads it after all"
    hears,got = threading.Event(),a.got
    def held(line):
        hears.wait()
        if line.endswith(b'\n'): got(line) # else the last bytes of a pipe that was full
    a.got = held
    return hears.set
def waiting(a): return struct.unpack('i', fcntl.ioctl(a.proc.stdout, termios.FIONREAD, b'\0'*4))[0]

def fill(a):
    "Stop reading, and have the agent write until its pipe is full; returns what `deaf` returns"
    hear = deaf(a)
    a.raw(b''.join(json.dumps(dict(jsonrpc='2.0', id=f'fill-{i}', method='_fill')).encode()+b'\n' for i in range(1500)))
    poll(lambda: waiting(a)>1<<13 and settled(lambda: waiting(a), .05), 30)
    return hear

def ends(a, got, how, record_property):
    "Let it happen, and see that the process ends as it should"
    names = ' '.join(got)
    hear = fill(a) if 'full' in how else None
    t = time.monotonic()
    if how.startswith('SIG'): a.proc.send_signal(getattr(signal, how.split()[0]))
    else: a.hang_up(stdin=how!='stdout', stdout=how in ('both','stdout'))
    if how=='stdout': a.put(id='last', method='_last') # our reading thread holds the pipe until one more line comes
    code = a.proc.wait(SOON)
    record_property(f'exit after {how} at {names}', round(time.monotonic()-t, 3)) # how soon it has to be, the benchmark knows
    assert code==0, f'{how} at {names}: code {code}'
    assert a.leaves_nothing(), f'{how} at {names}: still running'
    if hear: hear()
    with a.cond: assert a.cond.wait_for(lambda: a.eof, SOON)
    untouched(got)
    assert 'Traceback' not in a.stderr and len(a.stderr)<10_000, a.stderr[-3000:]

def answered(a, got):
    "Every prompt was answered once, as cancelled, and its card closed"
    for name,(s,id) in got.items():
        assert [m.get('result', {}).get('stopReason') for m in a.replies.get(id, [])]==['cancelled'], f'{name}: {a.replies.get(id)}'
        assert all(c['status']=='failed' for c in s.cards.values()), f'{name}: {s.cards}'

LOCAL = dict(fs=True, terminal=False)
def ready(a, late):
    "Wait, if `late`, until the ACP library has loaded, which takes over from what answered so far"
    f = Path(f'/proc/{a.proc.pid}/maps')
    if late and f.exists(): poll(lambda: '_pydantic_core' in f.read_text(), 30)

DEATHS = dict(both=False, stdin=True, stdout=True, full=False)
def death(how, late, names, models, record_property):
    with agent(models=models, rc=None, strict=False, **LOCAL) as a:
        ready(a, late)
        got = reach(a, names)
        ends(a, got, how, record_property)
        if how=='stdin': answered(a, got)

def wide(names, *default):
    "All of `names`, those that are no `default` behind `slow`"
    return pytest.mark.parametrize('how', [n if n in default else pytest.param(n, marks=pytest.mark.slow) for n in names])

@wide(DEATHS, 'stdin', 'full')
def test_an_editor_that_dies_in_the_middle_of_nine_turns_takes_them_all_with_it(how, models, record_property): death(how, DEATHS[how], [*STEPS], models, record_property)

@pytest.mark.slow
@pytest.mark.parametrize('how', DEATHS)
@pytest.mark.parametrize('step', STEPS)
def test_an_editor_that_dies_at_this_step_of_a_turn(step, how, models, record_property): death(how, not DEATHS[how], [step], models, record_property)

def test_an_editor_that_only_stops_reading_is_found_out_while_nothing_is_written(models, record_property): death('stdout', False, ['unanswered'], models, record_property)

# ---- a signal

def signalled(how, late, names, models, record_property, **caps):
    with agent(models=models, rc=None, **caps) as a:
        ready(a, late)
        got = reach(a, names)
        ends(a, got, how, record_property)
        if 'full' not in how: answered(a, got)
        poll(lambda: not any(s.ed.unreleased or [t for t in s.ed.terminals.values() if t.running] for s,_ in got.values()))

SIGNALS = {'SIGTERM with a terminal':('SIGTERM',True,FULL), 'SIGINT':('SIGINT',False,LOCAL), 'SIGTERM while nobody reads':('SIGTERM full',True,LOCAL)}
@wide(SIGNALS, 'SIGTERM with a terminal')
def test_a_signal_in_the_middle_of_nine_turns_ends_them_all_and_each_is_answered(how, models, record_property):
    how,late,caps = SIGNALS[how]
    signalled(how, late, [*STEPS], models, record_property, **caps)

@pytest.mark.slow
@pytest.mark.parametrize('caps', [FULL,LOCAL], ids=['terminal','local'])
@pytest.mark.parametrize('how', ['SIGTERM','SIGINT'])
@pytest.mark.parametrize('step', STEPS)
def test_a_signal_at_this_step_of_a_turn(step, how, caps, models, record_property): signalled(how, caps is LOCAL, [step], models, record_property, **caps)

def test_a_terminal_that_opens_while_the_process_leaves_is_killed_and_released():
    late = threading.Event()
    with agent(script=one('run_shell', command='touch up; sleep 90')) as a:
        s = a.session(answers={'terminal/create':lambda p: late.wait(60) and ...})
        id = s.start()
        s.until(lambda: s.ed.calls('terminal/create'))
        a.proc.send_signal(signal.SIGTERM)
        s.until(lambda: s.card()['status']=='failed')
        late.set()
        assert a.proc.wait(SOON)==0 and s.wait(id)['stopReason']=='cancelled'
        poll(lambda: s.ed.terminals and not s.ed.unreleased and not any(t.running for t in s.ed.terminals.values()))

HELLO = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}\n{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/tmp","mcpServers":[]}}\n'

@pytest.mark.parametrize('delays', [(0,.06,.25), pytest.param((0,.03,.06,.12,.25,.4,.6,1), marks=pytest.mark.slow)], ids=['few','many'])
def test_a_signal_while_the_process_still_loads_ends_it_without_a_word(delays, tmp_path):
    def run(sig, delay):
        p = subprocess.Popen([*PYTHON, '--model', 'demo'], stdin=-1, stdout=-1, stderr=-1, env=clean_env(tmp_path))
        try:
            p.stdin.write(HELLO); p.stdin.flush()
            first = p.stdout.readline()
            time.sleep(delay) # any moment will do
            p.send_signal(sig)
            out,err = p.communicate(timeout=60)
        finally: p.kill(); p.wait()
        assert p.returncode in (0,-sig) and not err.strip(), f'{sig!r} {delay} s after the first answer: code {p.returncode}: {err.decode()[-1500:]}'
        assert [strict(l)['id'] for l in [first, *out.splitlines(True)] if b'"id"' in l] in ([0],[0,1])
    with ThreadPoolExecutor(2) as ex: list(ex.map(run, [signal.SIGINT,signal.SIGTERM]*len(delays), [d for d in delays for _ in 'ab']))

def test_many_signals_are_one_signal(models):
    with agent(models=models, **LOCAL) as a:
        got = reach(a, ['command','permission'])
        while a.proc.poll() is None:
            a.proc.send_signal(signal.SIGINT)
            time.sleep(.0002)
        assert a.leaves(0)==0 and a.leaves_nothing()
        answered(a, got); untouched(got)

def test_a_prompt_that_came_just_before_the_editor_left_is_answered(tmp_path):
    p = subprocess.Popen([*PYTHON, '--model', 'demo'], stdin=-1, stdout=-1, stderr=-1, env=clean_env(tmp_path))
    try:
        p.stdin.write(HELLO); p.stdin.flush()
        sid = [json.loads(p.stdout.readline()) for _ in range(2)][1]['result']['sessionId']
        say = lambda id, meth, **kw: p.stdin.write(json.dumps(dict(jsonrpc='2.0', id=id, method=meth, params=kw)).encode()+b'\n')
        say(2, 'session/prompt', sessionId=sid, prompt=[dict(type='text', text='hi')])
        say(3, 'session/close', sessionId='nobody')
        out,err = p.communicate(timeout=60)
    finally: p.kill(); p.wait()
    got = [m for m in map(strict, out.splitlines(True)) if 'id' in m]
    assert p.returncode==0 and not err, err.decode()
    assert sorted(m['id'] for m in got)==[2,3] and next(m for m in got if m['id']==2).get('result', {}).get('stopReason')=='cancelled', got

def test_a_log_that_nobody_reads_holds_nothing_up(tmp_path):
    p = subprocess.Popen([*PYTHON, '--model', 'demo'], stdin=-1, stdout=-1, stderr=-1, env=clean_env(tmp_path))
    def write():
        p.stdin.write(HELLO+b''.join(b'{"jsonrpc":"2.0","method":"%s"}\n'%(b'm'*150) for _ in range(3000))+b'{"jsonrpc":"2.0","id":2,"method":"x"}\n'); p.stdin.flush()
    try:
        daemon(write)
        end = daemon(lambda: [l for l in iter(p.stdout.readline, b'') if json.loads(l).get('id')==2 and p.stdin.close()])
        assert p.wait(60)==0 and end
        assert len(p.stderr.read())<=1<<17
    finally: p.kill(); p.wait()

# ---- cancel

@pytest.mark.parametrize('where', ['full','bare'])
def test_law_4_cancel_answers_at_each_step_of_a_turn_and_nothing_runs_on(where, request, record_property):
    a = request.getfixturevalue(where)
    got = reach(a, [n for n in STEPS if where=='full' or n not in ('briefing','reading','writing')])
    took = {}
    for name,(s,id) in got.items():
        t = time.monotonic()
        s.cancel()
        r = s.wait(id, SOON)
        took[name] = round(time.monotonic()-t, 3)
        assert r['stopReason']=='cancelled' and all(c['status']=='failed' for c in s.cards.values()), name
    for k,v in took.items(): record_property(f'cancel {k} {where}', v)
    for s,_ in got.values(): poll(lambda: not s.ed.unreleased and not any(t.running for t in s.ed.terminals.values()))
    assert a.leaves_nothing()
    if where=='full': assert got['command'][0].ed.calls('terminal/kill')
    untouched(got)
    for name,(s,_) in got.items():
        s.ed.answers.clear()
        assert s.stop('again')=='end_turn' and s.said().endswith('ok'), name

def test_a_terminal_that_opens_after_the_cancel_is_killed_and_released(full):
    late = threading.Event()
    s = full.session([*one('run_shell', command='touch up; sleep 90'), OK], answers={'terminal/create':lambda p: late.wait(60) and ...})
    id = s.start()
    s.until(lambda: s.ed.calls('terminal/create'))
    s.cancel()
    assert s.wait(id, SOON)['stopReason']=='cancelled' and s.card()['status']=='failed'
    late.set()
    poll(lambda: s.ed.terminals and not s.ed.unreleased and not any(t.running for t in s.ed.terminals.values()))
    assert s.stop()=='end_turn'

# ---- an editor that is slow to read

FLOOD = [*[dict(text='x'*60_000)]*160, dict(sleep=60)]
def test_law_3_a_turn_cancelled_while_nobody_reads_says_nothing_after_its_answer(models, record_property):
    with agent(models=models, **BARE) as a:
        s = a.session([OK, FLOOD, OK, OK]) # a flood longer than the window of the model is summarised before the next request
        s.stop()
        rss,hear = memory(a.proc.pid),deaf(a)
        id = s.start()
        poll(lambda: waiting(a)>1<<13 and settled(lambda: memory(a.proc.pid)), 60)
        n = len(models.closed)
        s.cancel()
        models.wait_closed(n+1, 10)
        time.sleep(1.2) # whatever the turn does now, nobody sees it
        record_property('MiB while nobody reads', (memory(a.proc.pid)-rss)>>20)
        assert memory(a.proc.pid)-rss<100<<20
        hear()
        assert s.wait(id)['stopReason']=='cancelled'
        assert s.stop()=='end_turn' and s.said().endswith('ok')

def settled(f, secs=.2):
    "Does `f()` stay the same for `secs` seconds?"
    v = f()
    time.sleep(secs)
    return f()==v

def memory(pid):
    "Bytes of memory that process `pid` has now"
    st = Path(f'/proc/{pid}/statm')
    if st.exists(): return int(st.read_text().split()[1])*os.sysconf('SC_PAGE_SIZE')
    return int(subprocess.run(['ps','-o','rss=','-p',str(pid)], capture_output=True, text=True).stdout)<<10

# ---- the model's server breaks off

class Both(Models):
    "A model server that finds the folder in the system prompt of either dialect"
    def route(self, body): return super().route({**body, 'messages':[dict(content=body['system']), *body['messages']]} if 'system' in body else body)

@pytest.fixture
def both():
    with Both() as m: yield m

DIALECTS = dict(openai=Chat, anthropic=Messages)
def answer(dialect, name):
    "The events of an answer that thinks, talks and calls a tool, as bytes"
    d = DIALECTS[dialect](dict(model='m', stream_options=dict(include_usage=True)), 0)
    b = d.start()+d.think(dict(think='hm'))+d.text(dict(text='I write '))+d.text(dict(text='it.'))
    b += d.tool(dict(tool='create_file', id='c1', args=dict(path=name, text='whole'), pieces=3))+d.finish('calls')
    return [e+b'\n\n' for e in b.split(b'\n\n')[:-1]]

def cut_at(dialect, tries):
    "An entry that breaks off as its prompt says, `cut EVENTS HOW`, and does better the second time"
    def play(body):
        m = re.search(r'cut (\d+) (\w+)', json.dumps(body['messages'][-1]))
        if not m or m[0] in tries: return [dict(text='whole')]
        tries.add(m[0])
        b = b''.join(answer(dialect, f'{m[1]}-{m[2]}.txt')[:int(m[1])])
        return [dict(raw=b), dict(close=True) if m[2]=='close' else dict(cut=m[2])]
    return play

def breaks(s, dialect, how):
    "Break off after each number of events, in one session"
    evs = answer(dialect, '0-close.txt')
    last = max(i for i,e in enumerate(evs) if b'arguments' in e or b'input_json_delta' in e)+1 # with these many the call has all its arguments
    for k in range(len(evs)+1):
        said,prompt = len(s.said()),f'cut {k} {how}'
        try: r = s.wait(s.a.send('session/prompt', dict(sessionId=s.sid, prompt=[dict(type='text', text=prompt)]), id=f'{s.sid} {prompt}'))
        except Remote as e: r = e
        made,said = s.read(f'{k}-{how}.txt'),s.said()[said:]
        if isinstance(r, Remote):
            assert r.code==-32603 and r.data['code']=='turn_failed' and r.data['kind'] in ('cut','network','protocol') and '\n' not in str(r) and len(str(r))>20, (prompt, r.data)
            assert made is None and 'I write it.'.startswith(said), prompt
        elif made is None: assert k<last and r['stopReason']=='end_turn' and said=='whole', (prompt, said) # it was asked again
        else: assert k>=last and made=='whole' and said=='I write it.whole', prompt
        if k==len(evs): assert made=='whole'
    return len(evs)

@pytest.mark.parametrize('dialect', ['openai', pytest.param('anthropic', marks=pytest.mark.slow)])
def test_a_model_server_that_breaks_off_at_any_event_never_runs_half_a_call_and_the_session_goes_on(dialect, both):
    env = dict(OPENAI_BASE_URL=f'{both.base}/v1', OPENAI_API_KEY='sk-test-0123456789abcdef', ANTHROPIC_BASE_URL=both.base, ANTHROPIC_API_KEY='sk-test-0123456789abcdef')
    with agent('--model', f'{dialect}/some-model', env=env, **BARE) as a:
        a.models = both
        hows = ('fin','rst','close')
        ss = [a.session([cut_at(dialect, set())]*200, permit='allow_always') for _ in hows]
        with ThreadPoolExecutor(3) as ex: assert min(ex.map(breaks, ss, [dialect]*3, hows))>=11
        for s in ss: assert s.stop('and now?')=='end_turn'

# ---- our own process is killed, and our own code fails

DIES = '''
import os, runpy, time
at = os.environ['DIE_AT']
def stop(name, f, after=False):
    def g(*a, **kw):
        if name!=at: return f(*a, **kw)
        if after: f(*a, **kw)
        open(os.path.join(os.environ['HOME'], 'there'), 'w').close()
        time.sleep(60)
    return g
os.fsync = stop('before the sync', os.fsync)
os.replace = stop('after the exchange', stop('before the exchange', os.replace), True)
runpy.run_module('ramabana_acp', run_name='__main__')
'''
def test_kill_9_leaves_the_old_file_or_the_new_one():
    old,new = 'old\n'+'a line\n'*100_000,'new\n'+'a line\n'*100_000
    def run(at):
        with agent(cmd=[sys.executable,'-c',DIES], env=dict(DIE_AT=at), rc=None, script=one('edit_file', path='a.txt', old='old', new='new'), **BARE) as a:
            s = a.session(files={'a.txt':old})
            s.start()
            poll(lambda: (a.home/'there').exists(), 30)
            a.proc.kill()
            a.proc.wait(SOON)
            assert s.read('a.txt')==(new if at=='after the exchange' else old), at
            assert len([p for p in s.root.iterdir() if p.name!='a.txt'])<=(at!='after the exchange'), at
            return [p.name for p in s.root.iterdir()]
    with ThreadPoolExecutor(3) as ex: left = list(ex.map(run, ['before the sync','before the exchange','after the exchange']))
    assert all(n=='a.txt' or n.startswith('.a.txt.') and n.endswith('.tmp') for ns in left for n in ns)

KEY,TOKEN = 'correct-horse-battery-staple','sk-ant-api03-never0seen0before'
HOUSE = r'''
import asyncio, os, subprocess, sys
from ramabana_acp import AcpAgent, mk_agent, serve
from ramabana_acp.config import Config
from ramabana_acp.core import daemon
from ramabana_acp.tools.tool import Tool
WHAT = f"https://me:{Config.load().key('HOUSE_KEY')}@host says no: Authorization: Bearer {os.environ['UNKNOWN']}, x-api-key={os.environ['UNKNOWN']}"
def boom(*args, **kw):
    try: raise KeyError(WHAT)
    except KeyError as e: raise RuntimeError(f'twice: {WHAT}\nand on a second line: {WHAT}') from e
def breaks():
    "Break"
    boom()
def loud():
    "Be loud"
    print('hi'); sys.stdout.write('\x1b]0;t\x07'); sys.stdout.flush(); os.write(1, b'123\n')
    pid = os.fork()
    if not pid:
        try: os.write(1, f"fork {os.readlink('/proc/self/fd/1') if os.path.exists('/proc/self/fd/1') else ''}\n".encode())
        finally: os._exit(0)
    os.waitpid(pid, 0)
    os.system('printf from-a-shell; echo')
    return subprocess.run(['sh','-c','echo to-stderr >&2; ls -l /proc/self/fd /proc/$$/fd'], close_fds=False, stdout=subprocess.PIPE, text=True).stdout
def at(where, agent, host):
    if where=='stream': agent.stream = boom
    if where=='thread': agent.on_thought = None; was = agent.stream; agent.stream = lambda *a, **kw: (daemon(boom).join(), was(*a, **kw))[1]
    if where=='provider': agent._provider = type('P', (), dict(stream=boom))()
    if where=='briefing': host.read = boom
    if where=='gate': agent.approvals.request = boom
    if where=='command': agent.command = boom
    if where=='announce': agent.commands = boom
    if where=='close': host.close = boom
    if where=='plan': agent.activity.start = boom
    agent.tools.update(breaks=Tool(breaks, 'tool'), loud=Tool(loud, 'tool'))
def mk(roots, **kw):
    where = os.path.basename(roots[0])
    if where=='new': boom()
    res = mk_agent(roots, **kw)
    at(where, *res)
    return res
asyncio.run(serve(AcpAgent(model='scripted/'+os.environ['HOME']+'/script.json', mk=mk)))
'''
@pytest.fixture
def house(tmp_path):
    "The command of an agent with careless code in it"
    (tmp_path/'house.py').write_text(HOUSE)
    return [sys.executable, tmp_path/'house.py']

def test_law_9_an_exception_that_holds_a_secret_tells_it_to_nobody(house, tmp_path):
    env = dict(HOUSE_KEY=KEY, UNKNOWN=TOKEN, RAMABANA_LOG=tmp_path/'log')
    script = [[tool('breaks'), tool('create_file', 't2', path='x', text='y')], [dict(text='ok')]]
    with agent(cmd=house, env=env, script=script, rc=None, traceback=True, **BARE) as a:
        def session(where): return a.session(root=a.home/'ws'/where)
        with pytest.raises(Remote) as e: session('new')
        assert e.value.code==-32603
        for where in ('tool','stream','thread','provider','briefing','gate','announce','plan'):
            s = session(where)
            try: assert s.stop()=='end_turn', where
            except Remote as e: assert e.code==-32603 and e.data['code']=='turn_failed' and len(str(e))>10, where
        for prompt,where in (('/help','command'),('go','close')):
            s = session(where)
            try: s.prompt(prompt)
            except Remote as e: assert e.data['code']=='turn_failed', where
        with pytest.raises(Remote) as e: s.close()
        assert e.value.code==-32603
        assert a.session(root=a.home/'ws/last').stop()=='end_turn'
        a.close()
        told = dict(wire=b''.join(l for _,l in a.lines).decode(), stderr=a.stderr, log=(tmp_path/'log').read_text())
        for k,v in told.items():
            for s in (KEY, TOKEN, TOKEN[7:]): assert s not in v, f'{k}: …{v[max(v.index(s)-600,0):v.index(s)+100]}'
        assert 'says no' in told['wire'] and 'says no' in told['stderr'] # so it was really there to be told
        assert 'Traceback' not in told['wire'] and '.py' not in told['wire']

def test_C007_C008_a_tool_that_prints_and_forks_writes_into_the_log(house):
    with agent(cmd=house, env=dict(HOUSE_KEY=KEY, UNKNOWN=TOKEN), script=one('loud'), rc=None, **BARE) as a:
        inos = [f'pipe:[{os.fstat(f.fileno()).st_ino}]' for f in (a.proc.stdin, a.proc.stdout)]
        s = a.session()
        assert s.stop()=='end_turn' and s.card()['status']=='completed'
        for w in ('hi','123','fork','from-a-shell','to-stderr'): a.until_log(w)
        if sys.platform.startswith('linux'): assert 'pipe:[' in s.card()['rawOutput']['text'] and not any(i in a.stderr+str(s.cards) for i in inos)
