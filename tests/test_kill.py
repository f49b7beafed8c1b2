"Kill −9 in the middle of a turn: what was acknowledged is there, the conversation opens again and goes on; and before that, the order of write, sync and answer"
import asyncio, random
from concurrent.futures import ThreadPoolExecutor
from wire import *
from ramabana_acp.agent.journal import Disk
from ramabana_acp.agent.library import Library
from ramabana_acp.models.offline import ScriptedProvider

def step(i, k):
    "One answer of the model in turn `i`: words, and calls that leave a line in `log` each"
    calls = [tool('run_shell', f'c{i}{k}a', command=f'echo {i}{k}a >> log; sleep .03'), tool('create_file', f'c{i}{k}b', path=f'f{i}{k}', text=f'{i}{k}'),
        tool('run_shell', f'c{i}{k}c', command=f'echo {i}{k}c >> log')]
    words = [e for w in 'abc' for e in (dict(text=f'{i}{k}{w} '), dict(sleep=.01))]
    return [dict(think=f'think {i}{k}'), *words, *(calls if k else [tool('set_plan', f'p{i}', items=[f'plan {i}', 'more'])])]
def turn(i): return [step(i, 0), step(i, 1), step(i, 2), [dict(text=f'end of {i}')]]
TURNS = 3
def lines(s): return (s.read('log') or '').split()

def run_until_killed(a, s, rng):
    "Prompt until the process is killed at a point that `rng` picks; the number of turns that were answered"
    n,at,late,answered = 0,rng.randrange(2, 110),rng.choice((0, 0, rng.random()*.02)),0
    was = a.got
    def got(line):
        nonlocal n
        n += 1
        if n==at: time.sleep(late); os.kill(a.proc.pid, signal.SIGKILL)
        was(line)
    a.got = got
    try:
        for i in range(TURNS): s.prompt(f'prompt {i}', 30); answered += 1
    except (ConnectionError, OSError, TimeoutError): pass
    if a.proc.poll() is None: os.kill(a.proc.pid, signal.SIGKILL)
    a.proc.wait(10)
    with a.cond: a.cond.wait_for(lambda: a.eof, 5)
    return answered

def survives(seed, models):
    rng,home = random.Random(seed),Path(tempfile.mkdtemp(prefix=f'kill{seed}-')).resolve()
    try:
        with agent(models=models, home=home, rc=None, strict=False, **BARE) as a:
            s = a.session([e for i in range(TURNS) for e in turn(i)])
            answered = run_until_killed(a, s, rng)
            shown = {u['toolCallId']:u for u in s.ed.of('tool_call')}
            begun = len(s.requests) # of which each was made after its prompt was written
            a.problems(); a.faults.clear()
        poll(lambda: not a.offspring(), 5)
        did = lines(s)
        recs = transcript(home, s.sid)
        if recs is None: assert not begun and not answered and not did, f'seed {seed}: something was done and nothing is on disk'; return
        calls = {c['id']:c for r in recs if r['k']=='msg' for c in r['m']['content'] if c['type']=='call'}
        cards = {}
        for r in recs:
            if r['k']=='card': cards.setdefault(r['id'], []).append(r['state'])
        assert {f'c{l}' for l in did}<={i for i,st in cards.items() if 'running' in st}, f'seed {seed}: a command ran that was not on disk'
        assert {f'c{l}' for l in did}<=set(calls) and set(shown)<=set(cards), f'seed {seed}'
        assert not [i for i,st in cards.items() if st[-1]=='complete' and i[-1] in 'ac' and i[1:] not in did and i[0]=='c'], f'seed {seed}: done on disk and not in the world'
        for k in range(2):
            with agent(models=models, home=home, **BARE) as a:
                t = Again(a, s.sid, s.root)
                told = [u['content']['text'] for u in t.told if u['sessionUpdate'] in ('user_message_chunk','agent_message_chunk')]
                want = [w for i in range(answered) for w in (f'prompt {i}', *(f'{i}{x}a {i}{x}b {i}{x}c ' for x in range(3)), f'end of {i}')]
                assert told[:len(want)]==want, f'seed {seed}: {told} but {want}'
                assert all(c['status'] in ('completed','failed') for c in t.cards.values()) and set(t.cards)>=set(cards), f'seed {seed}'
                models.add(s.root, [[dict(text='go on')]])
                assert t.stop('and on')=='end_turn', f'seed {seed}'
                if k: assert told[-2:]==['and on','go on'], f'seed {seed}: {told}'
                assert lines(s)==did, f'seed {seed}: something ran twice'
    finally: shutil.rmtree(home, ignore_errors=True)

def transcript(home, sid):
    d = Library(Path(clean_env(home)['XDG_STATE_HOME'])/'ramabana-acp').find(sid)
    if d is None: return None
    bs = (Path(d)/'transcript.jsonl').read_bytes().split(b'\n')
    return [json.loads(b) for b in bs[:-1]] # the last one may be torn

def survive(seeds, models):
    with ThreadPoolExecutor(4) as ex: list(ex.map(lambda n: survives(n, models), seeds))

def test_ten_kills_at_seeded_points_lose_nothing_that_was_acknowledged(models): survive(range(10), models)

@pytest.mark.slow
@pytest.mark.parametrize('n', range(0, 50, 10))
def test_fifty_more_kills(models, n): survive(range(100+n, 110+n), models)

def test_C157_a_kill_between_call_and_result(models, tmp_path):
    home = tmp_path.resolve()
    with agent(models=models, home=home, rc=None, strict=False, **BARE) as a:
        s = a.session([[dict(text='I run it.'), tool('run_shell', 't1', command='touch began; sleep 30'), tool('run_shell', 't2', command='touch second')], OK])
        s.start(); poll(lambda: s.path('began').exists())
        os.kill(a.proc.pid, signal.SIGKILL); a.proc.wait(5)
        for pid in a.offspring(): os.kill(pid, signal.SIGKILL)
        a.problems(); a.faults.clear()
    with agent(models=models, home=home, **BARE) as a:
        t = Again(a, s.sid, s.root)
        assert t.cards['t1']['status']=='failed' and 'interrupted' in '\n'.join(strings(t.cards['t1']))
        models.add(s.root, [OK])
        assert t.stop('on')=='end_turn'
        assert 'interrupted' in t.results()[0] and 'not run' in t.results()[1] and not t.path('second').exists()

def test_a_kill_while_the_person_is_asked(models, tmp_path):
    home = tmp_path.resolve()
    with agent(models=models, home=home, rc=None, strict=False, **BARE) as a:
        s = a.session(one('create_file', path='x.txt', text='x'), permit=None)
        s.start(); s.until(lambda: s.asks)
        os.kill(a.proc.pid, signal.SIGKILL); a.proc.wait(5)
        a.problems(); a.faults.clear()
    with agent(models=models, home=home, **BARE) as a:
        t = Again(a, s.sid, s.root)
        assert t.card()['status']=='failed' and t.read('x.txt') is None and not t.asks
        models.add(s.root, [OK])
        assert t.stop('on')=='end_turn'

# ---- write, sync, then the side effect or the answer

class Noted(Editor):
    "An editor whose requests are noted in `seen` in the order in which they come"
    def __init__(self, seen, *args, **kw): self.seen = seen; super().__init__(*args, **kw)
    def __call__(self, method, params): self.seen.append(('ask', method)); return super().__call__(method, params)
    def on_update(self, sid, u): self.seen.append(('told', u['sessionUpdate'])); super().on_update(sid, u)

def recorded(tmp_path, script, prompts, **kw):
    "What happened in which order while `prompts` were answered, the journal and the editor together"
    from ramabana_acp.editor.acp import AcpAgent
    from ramabana_acp.editor.host import mk_agent
    from ramabana_acp.testing.editor import Inside
    seen,root = [],tmp_path/'ws'
    root.mkdir()
    async def go():
        ag = AcpAgent(mk=lambda roots, **k: mk_agent(roots, provider=ScriptedProvider(script), **k), cfg=tmp_path/'cfg')
        ed = Noted(seen, root, **kw)
        ag.on_connect(Inside(ed))
        await ag.initialize(1, ed.caps)
        ag.library.disk = Disk(note=lambda *a: seen.append(a))
        sid = (await ag.new_session(cwd=str(root)))['sessionId']
        for p in prompts: await ag.prompt([dict(type='text', text=p)], sid); seen.append(('answer', p))
        await ag.close_session(sid)
    asyncio.run(go())
    return seen

def acts(n): return [[dict(text='I work.'), tool('create_file', f'a{n}', path=f'{n}.txt', text='x'), tool('run_shell', f'b{n}', command='echo hi')], [dict(text='Done.')]]
@pytest.mark.parametrize('caps', [FULL, dict(fs=True, terminal=False)], ids=['terminal','files'])
def test_all_is_synced_before_a_side_effect_begins_and_before_the_answer(tmp_path, caps):
    seen = recorded(tmp_path, acts(1)+acts(2), ['one','two'], **caps)
    points = [i for i,(k,what) in enumerate(seen) if (k,what) in (('ask','fs/write_text_file'), ('ask','terminal/create')) or k=='answer']
    assert len(points)==(6 if caps['terminal'] else 4)
    for n,i in enumerate(points):
        since = [k for k,what in seen[points[n-1]+1 if n else 0:i] if what=='transcript.jsonl']
        assert 'write' in since and since[-1]=='fsync', f'{seen[i]}: {seen[:i][-12:]}'

def test_the_prompt_is_written_before_the_model_is_asked(tmp_path):
    seen = recorded(tmp_path, [[dict(text='hi')]], ['one'])
    at = seen.index(('told','agent_message_chunk'))
    assert ('write','transcript.jsonl') in seen[:at]
